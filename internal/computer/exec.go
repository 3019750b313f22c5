package computer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/redact"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Exec implements control.Streams: the user's own hands, on the live tree,
// without a transaction but with checkpoints around it.
func (c *Computer) Exec(ctx context.Context, r view.ExecRequest, eio view.ExecIO) (view.Exit, error) {
	const op = "computer.Exec"
	if r.ID == "" {
		r.ID = contract.NewID()
	}
	argv, err := c.recordable(ctx, r.Argv)
	if err != nil {
		return view.Exit{}, err
	}
	ctx, brought, unlist, err := c.commands.begin(ctx, r.ID, argv)
	if err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	defer unlist()
	before, unmade, err := c.checkpointAround(ctx, contract.CheckpointBefore, "before "+programOf(argv))
	if err != nil {
		return view.Exit{}, err
	}
	b, err := c.openTerminal(ctx, "terminal-"+r.ID, r.By.Account())
	if err != nil {
		return view.Exit{}, err
	}
	cleared := false
	defer func() {
		if cleared {
			return
		}
		if err := b.Kill(); err != nil {
			c.logger.Error("could not end a terminal box", "box", b.ID(), "error", err)
		}
	}()
	started, err := c.log.Append(ctx, contract.Draft{
		Actor: r.By, Type: "command.started", Subject: "command/" + r.ID,
		Data: contract.CommandStarted{Command: r.ID, Argv: argv, Cwd: r.Cwd},
	})
	if err != nil {
		return view.Exit{}, err
	}
	crash.At("computer.command.started")
	if eio.Started != nil {
		eio.Started(r.ID, started[0].Sequence)
	}
	begin := time.Now()
	exit, runErr := runIn(ctx, boxes.Client(b), r, eio, brought)
	finished := c.outcome(ctx, r.ID, b, exit, runErr, begin)
	// What the command did is done, whether or not its caller still listens.
	after, cancel := awake.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	ending := boxes.End
	if runErr == nil {
		ending = c.boxes.Clear
	}
	if err := ending(after, b); err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	cleared = true
	// Whoever is told that it ended may pull the plug.
	if err := c.workspace.Settle(after); err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	done, err := c.log.Append(after, contract.Draft{
		Actor: r.By, Type: "command.finished", Subject: "command/" + r.ID, Data: finished,
	})
	if err != nil {
		return view.Exit{}, err
	}
	crash.At("computer.command.finished")
	c.mirror.Settle(after, document.By(r.By), false)
	kept, unmadeAfter, err := c.checkpointAround(after, contract.CheckpointAfter, "after "+programOf(argv))
	if err != nil {
		return view.Exit{}, err
	}
	c.shell.Changed()
	if finished.ExitCode == -1 && finished.Reason != "" {
		return view.Exit{}, fault.Wrap(op, runErr)
	}
	return view.Exit{Command: r.ID, Code: finished.ExitCode, DurationMS: finished.DurationMS, Reason: finished.Reason, Sequence: done[0].Sequence,
		Unkept: shown.Unkept(kept.LeftOut.Since(before.LeftOut)), Unmade: cmp.Or(unmade, unmadeAfter)}, nil
}

// outcome is what the log says of how a command ended.
func (c *Computer) outcome(ctx context.Context, id string, b sandbox.Box, exit guest.Exit, runErr error, begin time.Time) contract.CommandFinished {
	finished := contract.CommandFinished{Command: id, ExitCode: exit.Code, DurationMS: exit.DurationMS}
	var ended *sandbox.Ended
	switch {
	case runErr == nil:
	case ctx.Err() != nil:
		finished.ExitCode, finished.Reason = 128+9, c.whoEnded(ctx)
	case boxes.Ended(b) && errors.As(b.Err(), &ended),
		b.Kill() == nil && errors.As(b.Err(), &ended) && ended.Reason != sandbox.Killed: // what it held takes the kernel long to free
		finished.ExitCode, finished.Reason = 128+9, string(ended.Reason)
		if ended.Reason == sandbox.Shared {
			finished.Reason += ": " + ended.Detail // the word alone tells nobody what
		}
	case fault.Is(runErr, fault.NotFound):
		finished.ExitCode, finished.Reason = 127, contract.Clip(redact.Shaped(fault.Text(runErr)), 1000)
	case fault.Is(runErr, fault.Denied):
		finished.ExitCode, finished.Reason = 126, contract.Clip(redact.Shaped(fault.Text(runErr)), 1000)
	default:
		finished.ExitCode, finished.Reason = -1, contract.Clip(redact.Shaped(runErr.Error()), 1000)
	}
	if finished.DurationMS == 0 {
		finished.DurationMS = time.Since(begin).Milliseconds()
	}
	return finished
}

// errStopped is the cause when somebody presses Stop.
var errStopped = errors.New("stopped by the user")

// whoEnded says who ended a command under way.
func (c *Computer) whoEnded(ctx context.Context) string {
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		return errStopped.Error()
	case c.ctx.Err() != nil:
		return "ended: the computer went to sleep"
	}
	return "ended: whoever started it stopped it or went away"
}

// unknownEnd is what is said of a command that nobody saw end.
const unknownEnd = "unknown: choir ended while it ran; it may have done all, some or none of its work, and does not run any more"

// closeCommands ends in the log what was running when the last process died:
// its box is gone, and how far it came nobody knows.
func (c *Computer) closeCommands(ctx context.Context) error {
	const op = "computer.closeCommands"
	for {
		open, err := c.state.Commands(ctx, state.MaxPage)
		if err != nil || len(open) == 0 {
			return fault.Wrap(op, err)
		}
		for _, k := range open {
			if _, err := c.log.Append(ctx, contract.Draft{
				ID: contract.DeriveID(k.ID, "closed"), Actor: contract.System(), Type: "command.finished", Subject: "command/" + k.ID,
				Data: contract.CommandFinished{Command: k.ID, ExitCode: -1, Reason: unknownEnd},
			}); err != nil {
				return fault.Wrap(op, err)
			}
		}
		if err := c.state.CaughtUp(ctx, c.log); err != nil {
			return fault.Wrap(op, err)
		}
	}
}

// openTerminal returns a box for one of the user's own commands: one that waits for
// the user, or a new one.
func (c *Computer) openTerminal(ctx context.Context, id, user string) (*boxes.Terminal, error) {
	// What is in the way there, such as a link, is the user's to see and remove:
	// the terminal then goes without the dependencies.
	if err := c.shell.MakeModulesDir(ctx); err != nil && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	modules, err := c.mounts.Modules(ctx, false)
	if err != nil {
		return nil, err
	}
	return c.boxes.Terminal(ctx, id, user, modules)
}

// remotes are the git remotes that choir add recorded, on the host.
func (c *Computer) remotes(ctx context.Context) ([]string, error) {
	repositories, err := c.state.Repositories(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range repositories {
		if r.Remote != "" {
			out = append(out, r.Remote)
		}
	}
	return out, nil
}

// recordable are a command's arguments as the log may hold them: whoever reads
// the log, agents in boxes among them, must not read a secret.
func (c *Computer) recordable(ctx context.Context, argv []string) ([]string, error) {
	known, err := c.machine.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	// Keys of models may come from the environment instead.
	for _, name := range []string{gateway.KeyAnthropic, gateway.KeyOpenAI} {
		if v := c.machine.Getenv(name); v != "" {
			known = append(known, v)
		}
	}
	return inLog(redact.Args(argv, known)), nil
}

// What the log holds of a command's arguments: there may be megabytes of them.
const (
	maxRecorded      = 256
	maxRecordedBytes = 48 << 10
)

// inLog is as much of the arguments as an event holds, and how many more there
// were.
func inLog(argv []string) []string {
	out, room := []string{}, maxRecordedBytes
	for i, word := range argv {
		if i == maxRecorded-1 && len(argv) > maxRecorded || len(word) > room && i > 0 {
			return append(out, fmt.Sprintf("… and %d more arguments", len(argv)-i))
		}
		word = contract.Shorten(word, room)
		out, room = append(out, word), room-len(word)
	}
	return out
}

// programOf names what a command runs, for a checkpoint's message: not its
// arguments, which may hold what has no place in history.
func programOf(argv []string) string {
	if len(argv) == 3 && argv[1] == "-c" && (argv[0] == "sh" || argv[0] == "bash") {
		if words := strings.Fields(argv[2]); len(words) > 0 {
			return contract.Clip(words[0], 60)
		}
	}
	return contract.Clip(argv[0], 60)
}

// running are the user's own commands that have not ended, whoever looks.
type running struct {
	mu sync.Mutex
	by map[string]runningCommand
}

type runningCommand struct {
	view.RunningCommand
	cancel  context.CancelCauseFunc
	brought chan view.CommandSignal
}

// begin lists a command until the returned function is called; its context ends
// when somebody stops it, and brought is what is brought to it meanwhile. The id of
// one that runs is taken, whoever started it: what is brought to that one, and the
// word of its end, must not go to another.
func (l *running) begin(ctx context.Context, id string, argv []string) (_ context.Context, brought <-chan view.CommandSignal, unlist func(), err error) {
	line := commandLine(argv)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.by[id]; taken {
		return nil, nil, nil, fault.New("", fault.Conflict, "Draw another id, or leave it out.", errors.New("a command with this id is running"))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if l.by == nil {
		l.by = map[string]runningCommand{}
	}
	signals := make(chan view.CommandSignal, maxBrought)
	l.by[id] = runningCommand{view.RunningCommand{ID: id, Line: contract.Clip(strings.ToValidUTF8(line, "\uFFFD"), 300), Started: time.Now().UTC()}, cancel, signals}
	return ctx, signals, func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.by, id)
	}, nil
}

// commandLine is a command as its user would type it.
func commandLine(argv []string) string {
	if len(argv) == 3 && argv[1] == "-c" {
		return argv[2]
	}
	return strings.Join(argv, " ")
}

// list returns them, oldest first.
func (l *running) list() []view.RunningCommand {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]view.RunningCommand, 0, len(l.by))
	for _, r := range l.by {
		out = append(out, r.RunningCommand)
	}
	slices.SortFunc(out, func(a, b view.RunningCommand) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// StopCommand answers rpc.CommandStop.
func (c *Computer) StopCommand(_ context.Context, id string) error {
	c.commands.mu.Lock()
	defer c.commands.mu.Unlock()
	r, ok := c.commands.by[id]
	if !ok {
		return fault.New("computer.StopCommand", fault.NotFound, "", errors.New("no such command is running"))
	}
	r.cancel(errStopped)
	return nil
}

// maxBrought is how much waits to be brought to a command.
const maxBrought = 64

// SignalCommand answers rpc.CommandSignal.
func (c *Computer) SignalCommand(_ context.Context, id string, s view.CommandSignal) error {
	const op = "computer.SignalCommand"
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Signal != "" && unix.SignalNum("SIG"+s.Signal) == 0 {
		return &contract.FieldError{Field: "signal", Reason: "is no signal"}
	}
	c.commands.mu.Lock()
	defer c.commands.mu.Unlock()
	r, ok := c.commands.by[id]
	if !ok {
		return fault.New(op, fault.NotFound, "", errors.New("no such command is running"))
	}
	select {
	case r.brought <- s:
		return nil
	default:
		return fault.New(op, fault.Unavailable, "Try again.", errors.New("too much waits to be brought to the command"))
	}
}

// runIn runs a command in a box, on a terminal of its own if it asks for one, and
// brings it what is brought meanwhile.
func runIn(ctx context.Context, g *guest.Client, r view.ExecRequest, eio view.ExecIO, brought <-chan view.CommandSignal) (guest.Exit, error) {
	dir := path.Join("/computer", r.Cwd)
	var ended sync.WaitGroup
	over := make(chan struct{})
	defer ended.Wait()
	defer close(over)
	each := func(do func(view.CommandSignal)) {
		ended.Go(func() {
			for {
				select {
				case s := <-brought:
					do(s)
				case <-over:
					return
				}
			}
		})
	}
	if r.Terminal == nil {
		signals := make(chan syscall.Signal)
		each(func(s view.CommandSignal) {
			if s.Signal == "" {
				return // a size, and there is no terminal
			}
			select {
			case signals <- unix.SignalNum("SIG" + s.Signal):
			case <-over:
			}
		})
		return g.Exec(ctx, guest.ExecRequest{Argv: r.Argv, Dir: dir, Stdin: eio.Stdin != nil},
			guest.Streams{Stdin: eio.Stdin, Stdout: eio.Stdout, Stderr: eio.Stderr, Signals: signals})
	}
	env := map[string]string{}
	if r.Terminal.Type != "" {
		env["TERM"] = r.Terminal.Type
	}
	p, err := g.PTY(ctx, guest.PTYRequest{Argv: r.Argv, Dir: dir, Env: env, Rows: uint16(r.Terminal.Rows), Cols: uint16(r.Terminal.Cols)})
	if err != nil {
		return guest.Exit{}, err
	}
	defer p.Close() // hangs up what is left on it
	each(func(s view.CommandSignal) {
		// One that fails found the terminal closed, which its reader sees.
		if s.Rows > 0 {
			_ = p.Resize(uint16(s.Rows), uint16(s.Cols))
		}
		if s.Signal != "" {
			_ = p.Signal(unix.SignalNum("SIG" + s.Signal))
		}
	})
	if eio.Stdin != nil {
		// Not waited for: it may block for as long as its owner likes.
		go func() { _, _ = io.Copy(p, eio.Stdin) }()
	}
	shown := eio.Stdout
	if shown == nil {
		shown = io.Discard
	}
	if _, err := io.Copy(shown, p); err != nil {
		return guest.Exit{}, cmp.Or(ctx.Err(), err)
	}
	return p.Wait()
}
