package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/mounts"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/redact"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// Shell is what commands need of the desktop.
type Shell interface {
	Changed()
	// MakeModulesDir makes the folder where its dependencies are shown.
	MakeModulesDir(ctx context.Context) error
}

// Options are the parts that the commands of one computer use.
type Options struct {
	Log       *ledger.Log
	Workspace *workspace.Workspace
	Mirror    *mirror.Mirror
	Boxes     *boxes.Boxes
	Mounts    *mounts.Mounts
	Shell     Shell
	Reserve   *datadir.Reserve
	// Secrets lists the values of secrets, which the log must not contain.
	Secrets func(ctx context.Context) ([]string, error)
	Getenv  func(string) string
	Keys    []string // the names of models' keys
	// Awake ends when the computer falls asleep.
	Awake  context.Context
	Logger *slog.Logger
}

// Commands runs the commands of one computer that is awake.
type Commands struct {
	options Options
	running running
}

// New makes a Commands; no command runs.
func New(o Options) *Commands { return &Commands{options: o} }

// Exec implements control.Streams: it runs a command of the user's own on the live tree,
// without a transaction but with checkpoints before and after it.
func (c *Commands) Exec(ctx context.Context, r view.ExecRequest, eio view.ExecIO) (view.Exit, error) {
	const op = "commands.Exec"
	if r.ID == "" {
		r.ID = contract.NewID()
	}
	argv, err := c.recordable(ctx, r.Argv)
	if err != nil {
		return view.Exit{}, err
	}
	ctx, brought, unlist, err := c.running.begin(ctx, r.ID, argv)
	if err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	defer unlist()
	before, unmade, err := c.checkpointAround(ctx, contract.CheckpointBefore, contract.Actor{}, "before "+programOf(argv))
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
			c.options.Logger.Error("could not end a terminal box", "box", b.ID(), "error", err)
		}
	}()
	started, err := c.options.Log.Append(ctx, contract.Draft{
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
	// What the command did stays, whether or not its caller still listens.
	after, cancel := awake.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	ending := boxes.End
	if runErr == nil {
		ending = c.options.Boxes.Clear
	}
	if err := ending(after, b); err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	cleared = true
	// When a command is reported as ended, what it did must survive a power cut.
	if err := c.options.Workspace.Settle(after); err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	by := document.By(r.By)
	by.Cause = started[0].ID // so that undo tells what it wrote from what its user revised meanwhile
	c.options.Mirror.Settle(after, by, false)
	kept, unmade, sequence, err := c.end(after, r.By, programOf(argv), finished, unmade)
	if err != nil {
		return view.Exit{}, err
	}
	crash.At("computer.command.finished")
	c.options.Shell.Changed()
	if finished.ExitCode == -1 && finished.Reason != "" {
		return view.Exit{}, fault.Wrap(op, runErr)
	}
	return view.Exit{Command: r.ID, Code: finished.ExitCode, DurationMS: finished.DurationMS, Reason: finished.Reason, Sequence: sequence,
		Unkept: shown.Unkept(kept.LeftOut.Since(before.LeftOut)), NoCheckpoint: unmade}, nil
}

// end makes the checkpoint after a command and then appends the command's end, which names
// that checkpoint, or says why there is none after it or before it.
func (c *Commands) end(ctx context.Context, by contract.Actor, program string, finished contract.CommandFinished, unmadeBefore string) (kept workspace.Checkpoint, unmade string, sequence uint64, err error) {
	kept, unmadeAfter, unkept := c.checkpointAround(ctx, contract.CheckpointAfter, by, "after "+program)
	if unkept != nil {
		unmadeAfter = "no checkpoint could be made after it: " + fault.Text(unkept)
	}
	crash.At("computer.command.kept")
	unmade = cmp.Or(unmadeBefore, unmadeAfter)
	finished.Checkpoint = kept.Commit
	finished.NoCheckpoint = contract.Clip(redact.Shaped(unmade), 1000)
	// The checkpoint may have used up its time, and the end is appended all the same.
	appending, cancel := awake.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	done, err := c.options.Log.Append(appending, contract.Draft{
		Actor: by, Type: "command.finished", Subject: "command/" + finished.Command, Data: finished,
	})
	if err = errors.Join(unkept, err); err != nil {
		return kept, unmade, 0, err
	}
	return kept, unmade, done[0].Sequence, nil
}

// outcome is what the log says about how a command ended.
func (c *Commands) outcome(ctx context.Context, id string, b sandbox.Box, exit guest.Exit, runErr error, begin time.Time) contract.CommandFinished {
	finished := contract.CommandFinished{Command: id, ExitCode: exit.Code, DurationMS: exit.DurationMS}
	var ended *sandbox.EndedError
	switch {
	case runErr == nil:
	case ctx.Err() != nil:
		finished.ExitCode, finished.Reason = 128+9, c.whoEnded(ctx)
	// The guest's answer shows that the box has not ended, so its end is not waited for:
	// the guest refused to start the command.
	case fault.Is(runErr, fault.NotFound):
		finished.ExitCode, finished.Reason = 127, contract.Clip(redact.Shaped(fault.Text(runErr)), 1000)
	case fault.Is(runErr, fault.Denied):
		finished.ExitCode, finished.Reason = 126, contract.Clip(redact.Shaped(fault.Text(runErr)), 1000)
	case fault.Is(runErr, fault.Invalid):
		finished.ExitCode, finished.Reason = -1, contract.Clip(redact.Shaped(runErr.Error()), 1000)
	case boxes.Ended(b) && errors.As(b.Err(), &ended),
		errors.As(errors.Join(b.Kill(), b.Err()), &ended) && ended.Reason != sandbox.Killed: // the kernel takes long to free what it held
		finished.ExitCode, finished.Reason = 128+9, string(ended.Reason)
		if ended.Reason == sandbox.Shared {
			finished.Reason += ": " + ended.Detail // the reason alone says too little
		}
	default:
		finished.ExitCode, finished.Reason = -1, contract.Clip(redact.Shaped(runErr.Error()), 1000)
	}
	if finished.DurationMS == 0 {
		finished.DurationMS = time.Since(begin).Milliseconds()
	}
	return finished
}

// errStopped is the cause of a command's end when somebody presses Stop.
var errStopped = errors.New("stopped by the user")

// whoEnded says who or what ended a command that was running.
func (c *Commands) whoEnded(ctx context.Context) string {
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		return errStopped.Error()
	case c.options.Awake.Err() != nil:
		return "ended: the computer went to sleep"
	}
	return "ended: whoever started it stopped it or went away"
}

// openTerminal returns a box for one of the user's own commands: one that waits for the
// user, or a new one.
func (c *Commands) openTerminal(ctx context.Context, id, user string) (*boxes.Terminal, error) {
	// A file or link in its place is the user's to see and remove: the terminal then has no
	// dependencies.
	if err := c.options.Shell.MakeModulesDir(ctx); err != nil && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	modules, err := c.options.Mounts.Modules(ctx, false)
	if err != nil {
		return nil, err
	}
	return c.options.Boxes.Terminal(ctx, id, user, modules)
}

// recordable are a command's arguments without secrets: whoever reads the log, agents in
// boxes among them, must not read one.
func (c *Commands) recordable(ctx context.Context, argv []string) ([]string, error) {
	known, err := c.options.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	// Keys of models may come from the environment instead.
	for _, name := range c.options.Keys {
		if v := c.options.Getenv(name); v != "" {
			known = append(known, v)
		}
	}
	return inLog(redact.Args(argv, known)), nil
}

// Bounds of a command's arguments in the log: there may be megabytes of them.
const (
	maxRecorded      = 256
	maxRecordedBytes = 48 << 10
)

// inLog is as much of the arguments as an event holds, and how many more there were.
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

// programOf is the program that a command runs, for a checkpoint's message. Its arguments
// are left out, which may contain what must not be in the history.
func programOf(argv []string) string {
	if len(argv) == 3 && argv[1] == "-c" && (argv[0] == "sh" || argv[0] == "bash") {
		if words := strings.Fields(argv[2]); len(words) > 0 {
			return contract.Clip(words[0], 60)
		}
	}
	return contract.Clip(argv[0], 60)
}

// checkpointAround makes the checkpoint before or after a command. If the disk is too full
// for it the command runs without one, for otherwise nothing could remove what fills the
// disk; unmade then says that there is none. The space reserved for the log is not used for
// a checkpoint that would take much of it.
func (c *Commands) checkpointAround(ctx context.Context, kind contract.CheckpointKind, by contract.Actor, message string) (k workspace.Checkpoint, unmade string, err error) {
	full := func() bool { return fault.Is(err, fault.DiskFull) || fault.NoSpace(err) }
	do := func() {
		k, err = c.options.Workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: kind, Message: contract.Clip(message, 200), By: by})
	}
	if do(); !full() {
		return k, "", err
	}
	if c.options.Reserve.Full(ctx) {
		if st, serr := c.options.Workspace.Status(ctx); serr == nil && st.Bytes <= c.options.Reserve.Share() {
			do()
		}
	}
	if full() {
		return workspace.Checkpoint{}, fmt.Sprintf("no checkpoint could be made %s it: the disk is full", kind), nil
	}
	return k, "", err
}
