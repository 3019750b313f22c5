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
	keptOutput   = 1 << 20 // bytes of a command's output that are kept: the last ones
	maxChunk     = 16 << 10
	keptCommands = 32 // of one computer, the ones that ended included
	maxRunning   = 8  // of one computer
	outputRate   = 4 << 20
	// window is how much of a command's output may be ahead of who reads it: the
	// command then waits, as it would for a pipe. readerGone is how long after it
	// last asked somebody counts as reading; output that nobody reads is kept as
	// far as it is kept, and the command goes on.
	window     = 256 << 10
	readerGone = 10 * time.Second
	outputWait = 10 * time.Second // how long a question for output may wait for some
	maxPart    = 128 << 10        // of output in one answer
)

// commands are the user's own commands that desktops started. They go on when
// the desktop is reloaded.
type commands struct {
	services *Services
	mu       sync.Mutex
	by       map[contract.CID][]*command // oldest first
}

func (cs *commands) init(s *Services) { cs.services, cs.by = s, map[contract.CID][]*command{} }

// chunk is a piece of output.
type chunk struct {
	view.OutputChunk
	end int64 // bytes of output up to here
}

// methods are what this answers of the declared methods.
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
	unkept  *view.Unkept // what it left behind that no checkpoint holds
	sent    int64        // bytes of output so far
	read    int64        // of which somebody has
	readAt  time.Time
	moved   chan struct{} // closed and replaced when output came, was read, or ended
}

func newCommand(id string, by rpc.Caller, cancel context.CancelFunc) *command {
	return &command{id: id, by: by, cancel: cancel, running: true, readAt: time.Now(), moved: make(chan struct{})}
}

// notify wakes whoever waits for the command to move. The lock is held.
func (c *command) notify() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// room waits until output may go on: whoever reads it has caught up, or nobody
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

// run starts a command and answers as soon as its start is in the log.
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
	// Whoever ends what an account has under way finds it from now on: one that lost
	// the right to it before is refused here.
	if _, err := cs.services.options.May(ctx, rpc.ExecRun.Declared, who.Computer, who.Principal); err != nil {
		cs.drop(who.Computer, cmd)
		cancel()
		return none, err
	}
	started := make(chan view.Started, 1)
	ended := make(chan error, 1)
	// The caller's own request is counted in the group, so it can't be at zero here.
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
		case st := <-started: // both, in whatever order we saw them
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

// find returns a command that was started at the caller's own session: what it
// says, and its end, are that session's. Another's is as if it were not there.
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

// output answers with what is kept of a command's output after a chunk, which
// says that the asker has it so far: the command goes no further ahead of that
// than its window. With wait it answers when there is something, or it has ended.
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
	// Dropped without the asker having had it.
	a.Truncated = c.dropped && len(c.chunks) > 0 && c.chunks[0].N > n+1
	size := 0
	for _, k := range c.chunks {
		if k.N <= n {
			c.read = max(c.read, k.end)
			continue
		}
		if size += len(k.Text); size > maxPart && len(a.Chunks) > 0 {
			// More is to come: whoever asks must not take this for the end.
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

// output is one stream of a command. Text travels in whole characters; what is
// not UTF-8 shows as replacement characters.
type output struct {
	cmd    *command
	stream view.OutputStream
	rest   []byte // the start of a character whose end has not come yet
	ctx    context.Context
	rate   *rate.Limiter // slows a command that floods
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

// incomplete is how many bytes at the end of p begin a character that is cut.
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
	o.cmd.chunks = append(o.cmd.chunks, chunk{view.OutputChunk{N: o.cmd.next, Stream: o.stream, Text: text}, o.cmd.sent})
	o.cmd.next++
	o.cmd.size += len(text)
	for o.cmd.size > keptOutput && len(o.cmd.chunks) > 1 {
		o.cmd.size -= len(o.cmd.chunks[0].Text)
		o.cmd.chunks, o.cmd.dropped = o.cmd.chunks[1:], true
	}
	o.cmd.notify()
}
