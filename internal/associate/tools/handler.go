package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
)

// Options of the box's tools.
type Options struct {
	// Root is the workspace's root in the box, such as /computer.
	Root string
	// Env is what commands get; nil means the process's own environment, which
	// in a box the host has made.
	Env []string
	// Base is where a verify box sees the commit the task started from, such as
	// /base; facts and check look there.
	Base string
}

// Box is the tools of one box.
type Box struct {
	root *os.Root
	dir  string
	env  []string
	base string
}

// New opens the workspace's root.
func New(o Options) (*Box, error) {
	r, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, fault.New("tools.New", fault.Missing, "", err)
	}
	env := o.Env
	if env == nil {
		env = os.Environ()
	}
	return &Box{root: r, dir: o.Root, env: env, base: o.Base}, nil
}

// Close releases the root.
func (b *Box) Close() error { return fault.Wrap("tools.Close", b.root.Close()) }

// Handler serves POST /tools/{name} for the workspace at root. The body is the
// call's arguments, the answer a Result; a request that is not a call of a
// known tool with valid arguments gets a 4xx with a Result that says why.
func Handler(root string) (http.Handler, error) {
	b, err := New(Options{Root: root})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// ServeHTTP implements http.Handler.
func (b *Box) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/tools/")
	if _, known := Lookup(name); !ok || !known {
		answer(w, http.StatusNotFound, failed(fmt.Sprintf("there is no tool %q", harness.Clip(name, 64))))
		return
	}
	if r.Method != http.MethodPost {
		answer(w, http.StatusMethodNotAllowed, failed("use POST"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if err != nil {
		answer(w, http.StatusRequestEntityTooLarge, failed(fmt.Sprintf("the arguments could not be read: %v", err)))
		return
	}
	if err := CheckArgs(name, body); err != nil {
		answer(w, http.StatusBadRequest, failed(err.Error()))
		return
	}
	res, err := b.Call(r.Context(), name, body, r.Header.Get(HeaderBase))
	crash.At("tool.done")
	if err != nil {
		answer(w, http.StatusInternalServerError, failed(err.Error()))
		return
	}
	answer(w, http.StatusOK, res)
}

func answer(w http.ResponseWriter, status int, res Result) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(res) // the caller is gone if this fails
}

// Call runs one tool whose arguments were checked. What the tool can't do is a
// Result with OK false; an error is a failure of the machinery.
func (b *Box) Call(ctx context.Context, name string, args json.RawMessage, base string) (Result, error) {
	var res Result
	var err error
	switch name {
	case "read":
		res, err = do(ctx, args, b.read)
	case "write":
		res, err = do(ctx, args, b.write)
	case "edit":
		res, err = do(ctx, args, b.edit)
	case "ls":
		res, err = do(ctx, args, b.ls)
	case "grep":
		res, err = do(ctx, args, b.grep)
	case "glob":
		res, err = do(ctx, args, b.glob)
	case "bash":
		res, err = do(ctx, args, b.bash)
	case "run":
		res, err = do(ctx, args, b.run)
	case "patch":
		res, err = do(ctx, args, b.patch)
	case "facts":
		res, err = do(ctx, args, b.facts)
	case "check":
		res, err = do(ctx, args, b.check)
	case "check_theme":
		res, err = do(ctx, args, b.checkTheme)
	case "git_status":
		res, err = do(ctx, args, func(ctx context.Context, a pathArgs) (Result, error) { return b.gitStatus(ctx, a, base) })
	case "git_diff":
		res, err = do(ctx, args, func(ctx context.Context, a pathArgs) (Result, error) { return b.gitDiff(ctx, a, base) })
	default:
		return Result{}, fault.New("tools.Call", fault.NotFound, "", fmt.Errorf("there is no tool %q", name))
	}
	var no refusal
	if errors.As(err, &no) {
		return failed(string(no)), nil
	}
	if err != nil && ctx.Err() == nil {
		// What the file system says is the model's to read: no such file, is a
		// directory, permission denied.
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return failed(fmt.Sprintf("%s: %v", pe.Path, pe.Err)), nil
		}
	}
	if len(res.Output) > MaxOutput {
		res.Output, res.Truncated = harness.Clip(res.Output, MaxOutput), true
	}
	res.Output = strings.ToValidUTF8(res.Output, "\uFFFD")
	return res, fault.Wrap("tools."+name, err)
}

func do[A any](ctx context.Context, raw json.RawMessage, f func(context.Context, A) (Result, error)) (Result, error) {
	var a A
	if err := json.Unmarshal(raw, &a); err != nil {
		return Result{}, refusal("arguments: " + err.Error())
	}
	return f(ctx, a)
}

// refusal is a reason the model should read.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

type pathArgs struct {
	Path string `json:"path"`
}

// clean turns a path as a model writes it into one relative to the root.
func (b *Box) clean(p string) (string, error) {
	if strings.IndexByte(p, 0) >= 0 || !utf8.ValidString(p) {
		return "", refuse("the path has a NUL byte or is not UTF-8")
	}
	if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(b.dir, "/")+"/"); ok {
		p = rest
	} else if p == b.dir {
		p = "."
	}
	if path.IsAbs(p) {
		return "", refuse("%s is outside the workspace; paths are relative to its root", harness.Clip(p, 200))
	}
	p = path.Clean(p)
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", refuse("%s leaves the workspace", harness.Clip(p, 200))
	}
	return p, nil
}

// cleanForWrite refuses what no task may write.
func (b *Box) cleanForWrite(p string) (string, error) {
	p, err := b.clean(p)
	if err != nil {
		return "", err
	}
	if p == "." {
		return "", refuse("the workspace's root is a folder")
	}
	if p == ".git" || strings.HasPrefix(p, ".git/") {
		return "", refuse("%s is inside .git, which tasks can't write; checkpoints are made for you", harness.Clip(p, 200))
	}
	return p, nil
}
