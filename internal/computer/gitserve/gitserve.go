package gitserve

import (
	"bytes"
	"context"
	_ "embed" // of the scripts
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

var (
	//go:embed repository.sh
	findRepository string // the beginning of both scripts, after the line that sets the place
	//go:embed read.sh
	readRepository string
	//go:embed push.sh
	pushRepository string
	//go:embed own.sh
	pushOwn string
	//go:embed objects.sh
	listObjects string
)

// script returns the shell script that a box runs for the repository at a place.
func script(at, do string) string {
	plain := "objects refs packed-refs shallow"
	if defence.Off(defence.GitPlain) {
		plain = ""
	}
	return "at=" + at + " plain='" + plain + "'\n" + findRepository + do
}

// Limits of a request.
const (
	wall        = 15 * time.Minute // time for one request
	patience    = 30 * time.Second // how long a request waits for its turn
	mostReads   = 6                // requests at once, of one computer
	readsOfOne  = 4                // and of one account, so that a client that stalls blocks nobody else
	mostPushes  = 3
	pushesOfOne = 2
	mostAsked   = 16 << 20 // bytes in which a client says what it has and wants
	mostSaid    = 4 << 20  // bytes of git's answer to a push, which is held until the push is published
	mostTrouble = 8 << 10  // bytes of git's error output
)

// Boxes is what a server needs of a computer's boxes; *boxes.Boxes implements it.
type Boxes interface {
	Open(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error)
	Limits() sandbox.Limits
}

// Workspace is what a server needs of a computer's files; *workspace.Workspace implements
// it.
type Workspace interface {
	Stat(ctx context.Context, p string) (wire.FileInfo, error)
	Checkpoint(ctx context.Context, req workspace.CheckpointRequest) (workspace.Checkpoint, error)
	Begin(ctx context.Context, id, base string) (workspace.Overlay, error)
	Drop(ctx context.Context, o workspace.Overlay) error
	DropAll(ctx context.Context, chosen func(id string) bool) error
	Receive(ctx context.Context, o workspace.Overlay, base, tip string, most int64, from io.Reader) (workspace.Received, error)
	Push(ctx context.Context, req workspace.PushRequest) (workspace.Published, error)
}

// Options are the parts that a server uses.
type Options struct {
	Boxes     Boxes
	Workspace Workspace
	Mirror    *mirror.Mirror // of the documents whose files a push changes
	// Changed tells the desktop that the tree has changed.
	Changed func()
	Append  func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	// Room returns an error if the disk has too little space.
	Room func(op string) error
	// PushBytes is the size of the largest push.
	PushBytes int64
	Logger    *slog.Logger
}

// Server answers git's requests for one computer.
type Server struct {
	options Options
	reads   *slots
	pushes  *slots
}

// New makes a Server.
func New(o Options) *Server {
	return &Server{options: o, reads: newPlaces(mostReads, readsOfOne), pushes: newPlaces(mostPushes, pushesOfOne)}
}

// pushed is the prefix of the name of a push's overlay.
const pushed = "push-"

// Sweep removes what the pushes of an earlier process left.
func (s *Server) Sweep(ctx context.Context) error {
	return s.options.Workspace.DropAll(ctx, func(id string) bool { return strings.HasPrefix(id, pushed) })
}

// Repository returns the place in the live tree of the repository that a client names, with
// or without ".git" at the end; "" is the history of the computer's own files. It returns
// fault.NotFound if there is none.
func (s *Server) Repository(ctx context.Context, name string) (string, error) {
	const op = "gitserve.Find"
	if name == "" {
		return "", nil
	}
	for _, p := range []string{name, strings.TrimSuffix(name, ".git")} {
		if p == "" || p == "." || contract.ValidPath("repository", p) != nil || inGit(p) {
			continue
		}
		at, err := s.options.Workspace.Stat(ctx, p)
		if err == nil && at.Kind == "dir" {
			return p, nil
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) && !fault.Is(err, fault.Invalid) {
			return "", fault.Wrap(op, err)
		}
	}
	return "", missing(op)
}

func missing(op string) error {
	return fault.New(op, fault.NotFound, "Name the folder that the repository is in, such as workspace/NAME.", errors.New("there is no such repository"))
}

// inGit says whether a path leads into a repository's own files.
func inGit(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

// Git answers one request. The repository must be one that Repository returned. Nothing is
// written to out before git has begun to answer.
func (s *Server) Git(ctx context.Context, c view.GitCall, in io.Reader, out io.Writer) error {
	op, turns := "gitserve.Read", s.reads
	if c.Push && !c.Advertise {
		op, turns = "gitserve.Push", s.pushes
	}
	ctx, cancel := awake.WithTimeout(ctx, wall)
	defer cancel()
	release, err := turns.take(ctx, c.By.Account())
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer release()
	in = &deadlineReader{ctx, in}
	if c.Push && !c.Advertise {
		return fault.Wrap(op, s.push(ctx, c, in, out))
	}
	return fault.Wrap(op, s.read(ctx, c, in, out))
}

// read lets git read a repository in a box that sees nothing else.
func (s *Server) read(ctx context.Context, c view.GitCall, in io.Reader, out io.Writer) error {
	source := sandbox.Live(c.Repository)
	if c.Repository == "" {
		source = sandbox.Live(".git")
	}
	mounts := []sandbox.Mount{{Source: source, Target: "/repository", Mode: sandbox.ReadOnly}}
	if defence.Off(defence.GitAlone) {
		mounts = append(mounts, sandbox.Mount{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadOnly})
	}
	said := out
	advertise := ""
	var wants []byte
	if c.Advertise {
		advertise = "advertise"
		if c.Protocol < 2 || c.Push {
			said = &prefixWriter{w: out, first: line("# service="+c.Service()+"\n") + "0000"}
		}
	} else {
		asked, err := io.ReadAll(io.LimitReader(in, mostAsked+1))
		if err != nil {
			return err
		}
		if len(asked) > mostAsked {
			return fault.New("", fault.Exhausted, "Fetch less at once.", errors.New("the request is too long"))
		}
		if wants, err = wanted(asked); err != nil {
			return err
		}
		in = io.MultiReader(bytes.NewReader(wants), bytes.NewReader(asked)) // the request was read completely, so that a client that disconnects is noticed
	}
	var stdin io.Reader
	if !c.Advertise {
		stdin = in
	}
	return s.run(ctx, "git-"+contract.NewID(), mounts, c.Protocol, []string{script("/repository", readRepository), "sh", strings.TrimPrefix(c.Service(), "git-"), advertise, strconv.Itoa(len(wants))}, stdin, said)
}

// run runs a script in a box of its own, which has ended when it returns.
func (s *Server) run(ctx context.Context, id string, mounts []sandbox.Mount, protocol int, argv []string, in io.Reader, out io.Writer) error {
	return s.within(ctx, id, mounts, func(box sandbox.Box) error { return exec(ctx, box, protocol, argv, in, out) })
}

// within opens a box, calls do, and ends the box.
func (s *Server) within(ctx context.Context, id string, mounts []sandbox.Mount, do func(box sandbox.Box) error) (err error) {
	limits := s.options.Boxes.Limits()
	limits.WallTime = wall
	box, err := s.options.Boxes.Open(ctx, sandbox.BoxSpec{ID: id, Kind: contract.BoxScratch, Root: "/tmp", Mounts: mounts, Limits: limits})
	if err != nil {
		return err
	}
	defer func() {
		if kerr := box.Kill(); kerr != nil {
			err = errors.Join(err, kerr)
		}
	}()
	return do(box)
}

// exec runs a script in a box.
func exec(ctx context.Context, box sandbox.Box, protocol int, argv []string, in io.Reader, out io.Writer) error {
	env := map[string]string{
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/tmp", "GIT_GRAFT_FILE": "/dev/null", "GIT_NO_REPLACE_OBJECTS": "1",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8",
		"GIT_COMMITTER_NAME": "choir", "GIT_COMMITTER_EMAIL": "choir@localhost",
	}
	if protocol > 0 {
		env["GIT_PROTOCOL"] = fmt.Sprintf("version=%d", protocol)
	}
	var trouble bytes.Buffer
	exit, err := boxes.Client(box).Exec(ctx, guest.ExecRequest{Argv: append([]string{"sh", "-c"}, argv...), Dir: "/tmp", Env: env},
		guest.Streams{Stdin: in, Stdout: out, Stderr: &clipped{&trouble, mostTrouble}})
	if err != nil {
		var ended *sandbox.EndedError
		if ctx.Err() == nil && boxes.Ended(box) && errors.As(box.Err(), &ended) {
			return fault.New("", ended.Code(), "", fmt.Errorf("git was ended in the computer: %s %s", ended.Reason, ended.Detail))
		}
		return err
	}
	return troubled(exit, trouble.String())
}

// troubled returns the error for a script that did not succeed.
func troubled(exit guest.Exit, said string) error {
	switch exit.Code {
	case 0:
		return nil
	case 65:
		return fault.New("", fault.Denied, "Name the repository that it belongs to.", errors.New("what is there is a part of a repository that lies elsewhere, or a link"))
	case 66:
		return missing("")
	case 67:
		return fault.New("", fault.Denied, "Run git repack -a -d in it and remove .git/objects/info/alternates.", errors.New("the repository borrows objects from another one"))
	case 68:
		return fault.New("", fault.Invalid, "", errors.New("the repository names its objects, or keeps its refs, in a way that is not known here"))
	case 69:
		return fault.New("", fault.Conflict, "Remove it from the repository's .git.", errors.New("a file config.before-push is in the way"))
	case 70:
		return fault.New("", fault.Conflict, "Fetch, merge or rebase, then push again.", errors.New("the push does not go on from a checkpoint"))
	case 71:
		return fault.New("", fault.Denied, "find .git/objects .git/refs ! -type f ! -type d names it; remove it.", errors.New("among the repository's objects or refs is something other than files and folders: a link, or a pipe"))
	}
	if said = strings.TrimSpace(said); said == "" {
		said = fmt.Sprintf("git ended with code %d", exit.Code)
	}
	return fault.New("", fault.Unavailable, "", errors.New(contract.Clip(said, 1000)))
}

// deadlineReader reads what a client sends until ctx ends, so that a client that sends a
// byte now and then is not waited for longer than any other.
type deadlineReader struct {
	ctx context.Context
	r   io.Reader
}

func (h *deadlineReader) Read(b []byte) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	return h.r.Read(b)
}

// prefixWriter writes a text before the first bytes that are written.
type prefixWriter struct {
	w     io.Writer
	first string
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	if p.first != "" {
		if _, err := io.WriteString(p.w, p.first); err != nil {
			return 0, err
		}
		p.first = ""
	}
	return p.w.Write(b)
}

// clipped keeps the first bytes of what is written to it.
type clipped struct {
	b    *bytes.Buffer
	most int
}

func (c *clipped) Write(p []byte) (int, error) {
	c.b.Write(p[:min(len(p), max(0, c.most-c.b.Len()))])
	return len(p), nil
}

// title names a repository in a checkpoint's message.
func title(repository string) string {
	if repository == "" {
		return "the computer's files"
	}
	return contract.Clip(path.Clean(repository), 120)
}
