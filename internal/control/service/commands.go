package service

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// Limits of the commands that desktops start.
const (
	keptOutput   = 1 << 20 // how many of the last bytes of a command's output are kept
	maxChunk     = 16 << 10
	keptCommands = 32 // of one computer, including ended ones
	maxRunning   = 8  // of one computer
	outputRate   = 4 << 20
	// window is how far a command's output may be ahead of its reader; then the command
	// waits, as it would for a full pipe. Somebody counts as a reader for readerGone after
	// they last asked for output. Without a reader the command does not wait: the last
	// keptOutput bytes are kept.
	window     = 256 << 10
	readerGone = 10 * time.Second
	outputWait = 10 * time.Second // how long a request for output may wait for some
	maxPart    = 128 << 10        // bytes of output in one answer
)

// commands holds the users' commands that desktops started. They go on when the desktop's
// page is reloaded.
type commands struct {
	services *Services
	mu       sync.Mutex
	by       map[contract.CID][]*command // oldest first
}

func (cs *commands) init(s *Services) { cs.services, cs.by = s, map[contract.CID][]*command{} }

// chunk is a piece of output.
type chunk struct {
	view.OutputChunk
	end int64 // how many bytes of output there were up to the end of this chunk
}

// methods returns the handlers of the declared methods about commands.
func (cs *commands) methods() rpc.Table {
	t := rpc.Table{}
	rpc.Bind(t, rpc.ExecRun, cs.run)
	rpc.Bind(t, rpc.ExecOutput, cs.output)
	rpc.Bind(t, rpc.ExecStop, cs.stop)
	return t
}

type command struct {
	id     string
	by     rpc.Caller // who started it
	cancel context.CancelFunc

	mu      sync.Mutex
	chunks  []chunk
	size    int
	next    int64
	dropped bool
	running bool
	exit    *int
	unkept  *view.Unkept // the files it left that no checkpoint contains
	sent    int64        // how many bytes of output there were so far
	read    int64        // how many of them somebody has read
	readAt  time.Time
	moved   chan struct{} // closed and replaced when there is output, when it is read, and at the end
}

func newCommand(id string, by rpc.Caller, cancel context.CancelFunc) *command {
	return &command{id: id, by: by, cancel: cancel, running: true, readAt: time.Now(), moved: make(chan struct{})}
}

// notify wakes those who wait for a change of the command. The caller holds the lock.
func (c *command) notify() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// room waits until there may be more output: until its reader has caught up, or nobody
// reads it.
func (c *command) room(ctx context.Context) error {
	for {
		c.mu.Lock()
		moved, left := c.moved, readerGone-time.Since(c.readAt)
		full := c.sent-c.read > window && left > 0 && !defence.Off(defence.OutputWindow)
		c.mu.Unlock()
		if !full {
			return ctx.Err()
		}
		timer := time.NewTimer(left)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// run starts a command and answers as soon as the command's start is in the log.
func (cs *commands) run(ctx context.Context, who rpc.Caller, in rpc.ExecRequest) (view.Started, error) {
	var none view.Started
	req, err := view.ExecRequest{ID: in.Body.ID, Argv: in.Body.Argv, Cwd: in.Body.Cwd, By: who.Actor}.Valid()
	if err != nil {
		return none, err
	}
	c, err := cs.services.options.Computer(ctx, who.Computer)
	if err != nil {
		return none, err
	}
	runCtx, cancel := context.WithCancel(cs.services.ctx)
	cmd := newCommand(req.ID, who, cancel)
	if err := cs.add(who.Computer, cmd); err != nil {
		cancel()
		return none, err
	}
	// The command is registered now, so whoever takes this right away from now on ends it.
	// A right that was taken away before is found missing here.
	if _, err := cs.services.options.May(ctx, rpc.ExecRun.Declared, who.Computer, who.Principal); err != nil {
		cs.drop(who.Computer, cmd)
		cancel()
		return none, err
	}
	started := make(chan view.Started, 1)
	ended := make(chan error, 1)
	// This request is itself counted in the group, so its counter is not zero here, as Go
	// requires.
	cs.services.wg.Go(func() {
		defer cancel()
		out, errs := &output{cmd, view.Stdout, nil, runCtx, limiter()}, &output{cmd, view.Stderr, nil, runCtx, limiter()}
		var exit view.Exit
		err := supervise.Safely(func() (err error) {
			exit, err = c.Exec(runCtx, req, view.ExecIO{Stdout: out, Stderr: errs, Started: func(command string, sequence uint64) { started <- view.Started{Command: command, Sequence: sequence} }})
			return err
		})
		out.flush()
		errs.flush()
		code := exit.Code
		if err != nil {
			code = -1
			cs.services.log.Warn("a command's outcome is lost", "computer", who.Computer, "command", cmd.id, "error", err, "stack", supervise.Stack(err))
		}
		cmd.mu.Lock()
		cmd.running, cmd.exit = false, &code
		if exit.Unkept.Files+exit.Unkept.Ignored > 0 {
			cmd.unkept = &exit.Unkept
		}
		cmd.notify()
		cmd.mu.Unlock()
		ended <- err
	})
	select {
	case st := <-started:
		return st, nil
	case err := <-ended:
		select {
		case st := <-started: // it started and ended; select may have seen the end first
			return st, nil
		default:
		}
		cs.drop(who.Computer, cmd)
		if err == nil {
			err = errors.New("the command ended before it started")
		}
		return none, err
	case <-ctx.Done():
		cancel()
		return none, ctx.Err()
	}
}

func limiter() *rate.Limiter { return rate.NewLimiter(outputRate, outputRate) }

func (cs *commands) add(cid contract.CID, cmd *command) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	list, running := cs.by[cid], 0
	for _, c := range list {
		if c.id == cmd.id {
			return fault.New("", fault.Conflict, "", errors.New("id: a command with this id was started already"))
		}
		if c.active() {
			running++
		}
	}
	if running >= maxRunning {
		return fault.New("", fault.Exhausted, "Stop one of them first.", errors.New("too many commands are running"))
	}
	for i := 0; len(list) >= keptCommands && i < len(list); {
		if list[i].active() {
			i++
			continue
		}
		list = append(list[:i:i], list[i+1:]...)
	}
	cs.by[cid] = append(list, cmd)
	return nil
}

func (cs *commands) drop(cid contract.CID, cmd *command) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	kept := []*command{}
	for _, c := range cs.by[cid] {
		if c != cmd {
			kept = append(kept, c)
		}
	}
	cs.by[cid] = kept
}

// find returns a command that was started in the caller's own session, whose output only
// that session may see and which only it may stop. Another session's command is treated as
// absent.
func (cs *commands) find(who rpc.Caller, id string) (*command, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, cmd := range cs.by[who.Computer] {
		if cmd.id == id && (cmd.by.Session == who.Session || defence.Off(defence.OutputSession)) {
			return cmd, nil
		}
	}
	return nil, fault.New("", fault.NotFound, "", errors.New("its output is not kept any more"))
}

// end ends the commands of an account in a computer, or in all when cid is empty.
func (cs *commands) end(account string, cid contract.CID) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for at, list := range cs.by {
		for _, cmd := range list {
			if cmd.by.Actor.Account() == account && (cid == "" || cid == at) && !defence.Off(defence.GrantCommands) {
				cmd.cancel()
			}
		}
	}
}

func (c *command) active() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// output returns what is kept of a command's output after a chunk. The request also tells
// that the asker has read everything up to that chunk, and the command does not run further
// ahead than its window. With wait, it answers as soon as there is output or the command
// has ended.
func (cs *commands) output(ctx context.Context, who rpc.Caller, in rpc.OutputRequest) (view.Output, error) {
	cmd, err := cs.find(who, in.Body.Command)
	if err != nil {
		return view.Output{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, outputWait)
	defer cancel()
	for {
		a, moved := cmd.after(in.Body.After)
		if len(a.Chunks) > 0 || !a.Running || !in.Body.Wait {
			return a, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return a, nil
		}
	}
}

func (c *command) after(n int64) (view.Output, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := view.Output{Chunks: []view.OutputChunk{}, Running: c.running, ExitCode: c.exit, Unkept: c.unkept}
	// Output was dropped that the asker had not read.
	a.Truncated = c.dropped && len(c.chunks) > 0 && c.chunks[0].Number > n+1
	size := 0
	for _, k := range c.chunks {
		if k.Number <= n {
			c.read = max(c.read, k.end)
			continue
		}
		if size += len(k.Text); size > maxPart && len(a.Chunks) > 0 {
			// There is more output, so this answer must not look like the last one.
			a.Running, a.ExitCode, a.Unkept = true, nil, nil
			break
		}
		a.Chunks = append(a.Chunks, k.OutputChunk)
	}
	c.readAt = time.Now()
	c.notify()
	return a, c.moved
}

func (cs *commands) stop(_ context.Context, who rpc.Caller, in rpc.StopRequest) (rpc.None, error) {
	cmd, err := cs.find(who, in.Body.Command)
	if err != nil {
		return rpc.None{}, err
	}
	cmd.cancel()
	return rpc.None{}, nil
}

// output is one output stream of a command. It is split into chunks at whole characters;
// bytes that are not UTF-8 become replacement characters.
type output struct {
	cmd    *command
	stream view.OutputStream
	rest   []byte // the first bytes of a character that is not complete yet
	ctx    context.Context
	rate   *rate.Limiter // slows down a command that writes too fast
}

func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	buf := append(o.rest, p...)
	for len(buf) > 0 {
		part := buf[:min(len(buf), maxChunk)]
		if tail := incomplete(part); tail > 0 && tail < len(part) {
			part = part[:len(part)-tail]
		} else if tail > 0 && len(part) == len(buf) {
			break
		}
		if err := o.cmd.room(o.ctx); err != nil {
			return 0, err
		}
		if err := o.rate.WaitN(o.ctx, len(part)); err != nil {
			return 0, err
		}
		o.emit(part)
		buf = buf[len(part):]
	}
	o.rest = append([]byte(nil), buf...)
	return n, nil
}

func (o *output) flush() {
	if len(o.rest) > 0 {
		o.emit(o.rest)
		o.rest = nil
	}
}

// incomplete returns how many bytes at the end of p are the beginning of an incomplete
// character.
func incomplete(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		b := p[len(p)-i]
		if utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

func (o *output) emit(p []byte) {
	text := string([]rune(string(p))) // each invalid byte becomes U+FFFD
	o.cmd.mu.Lock()
	defer o.cmd.mu.Unlock()
	o.cmd.sent += int64(len(text))
	o.cmd.chunks = append(o.cmd.chunks, chunk{view.OutputChunk{Number: o.cmd.next, Stream: o.stream, Text: text}, o.cmd.sent})
	o.cmd.next++
	o.cmd.size += len(text)
	for o.cmd.size > keptOutput && len(o.cmd.chunks) > 1 {
		o.cmd.size -= len(o.cmd.chunks[0].Text)
		o.cmd.chunks, o.cmd.dropped = o.cmd.chunks[1:], true
	}
	o.cmd.notify()
}
