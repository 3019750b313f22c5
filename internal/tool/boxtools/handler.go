package boxtools

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
	"sync"
	"unicode/utf8"

	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
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

	changing sync.Mutex // held by a tool that changes files, from looking at them to the end
	seen     seen
	kept     kept
	shell    shell
	jobs     jobs
}

// HeaderBase carries the commit a task started from, for the tools that compare
// with it.
const HeaderBase = "Choir-Base"

// Bounds of what the tools return or read.
const (
	MaxOutput   = 64 << 10  // a result's Output
	maxData     = 3 << 20   // what only the host gets: facts, and which tests ran
	maxArgs     = 2 << 20   // a call's arguments
	maxShown    = 15 << 10  // what is said of files and commands: a loop cuts longer returns in the middle
	maxStream   = 256 << 10 // each of a command's stdout and stderr, head and tail
	maxFile     = 8 << 20   // a file that is read whole or edited
	maxPicture  = 3_000_000 // a picture that is shown; the host takes 4 MiB of an answer, of base64
	maxMatches  = 300       // grep
	maxListed   = 1000      // glob and ls
	maxVisited  = 100_000   // entries one search looks at
	maxGrepFile = 2 << 20   // larger files are not searched
)

// New opens the workspace's root.
func New(o Options) (*Box, error) {
	r, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, fault.New("boxtools.New", fault.Missing, "", err)
	}
	env := o.Env
	if env == nil {
		env = os.Environ()
	}
	return &Box{root: r, dir: o.Root, env: env, base: o.Base, seen: seen{files: map[string]sight{}}}, nil
}

// Close ends the commands in the background and releases the root.
func (b *Box) Close() error {
	b.jobs.end()
	return fault.Wrap("boxtools.Close", errors.Join(b.kept.close(), b.root.Close()))
}

// Result is the answer to a call.
type Result = tool.Result

// ServeHTTP serves POST /tools/{name}. The body is the call's arguments, the
// answer a Result; a request that is not a call of a known tool with valid
// arguments gets a 4xx with a Result that says why.
func (b *Box) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _ := strings.CutPrefix(r.URL.Path, "/tools/")
	t, known := served().Lookup(name)
	if !known {
		answer(w, http.StatusNotFound, tool.Failed("there is no tool %q", harness.Clip(name, 64)))
		return
	}
	if r.Method != http.MethodPost {
		answer(w, http.StatusMethodNotAllowed, tool.Failed("use POST"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(t.Limits.In)))
	if err != nil {
		answer(w, http.StatusRequestEntityTooLarge, tool.Failed("the arguments could not be read: %v", err))
		return
	}
	if err := served().Check(name, body); err != nil {
		answer(w, http.StatusBadRequest, tool.Failed("%v", err))
		return
	}
	res, err := b.Call(r.Context(), name, body, r.Header.Get(HeaderBase))
	crash.At("tool.done")
	if err != nil {
		answer(w, http.StatusInternalServerError, tool.Failed("%v", err))
		return
	}
	answer(w, http.StatusOK, res)
}

func answer(w http.ResponseWriter, status int, res Result) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(res) // the caller is gone if this fails
}

// Call carries out a call whose arguments were checked. If the tool can't do it, that is a
// Result with OK false; an error means that the machinery failed.
func (b *Box) Call(ctx context.Context, name string, args json.RawMessage, base string) (Result, error) {
	d, ok := served().calls[name]
	if !ok {
		return Result{}, fault.New("boxtools.Call", fault.NotFound, "", fmt.Errorf("there is no tool %q", name))
	}
	return d.Do(ctx, args, func(ctx context.Context) (Result, error) {
		res, err := d.call(b, ctx, args, base)
		var no refusal
		if errors.As(err, &no) {
			return Result{Output: string(no)}, nil
		}
		// Errors of the file system are for the model to read: no such file, is a
		// directory, permission denied.
		var pe *fs.PathError
		if err != nil && ctx.Err() == nil && errors.As(err, &pe) {
			return tool.Failed("%s: %v", pe.Path, pe.Err), nil
		}
		return res, err
	})
}

// refusal is an error that the model should read.
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
