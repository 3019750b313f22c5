package commands

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// running are the user's own commands that have not ended, whoever started them.
type running struct {
	mu sync.Mutex
	by map[string]runningCommand
}

type runningCommand struct {
	view.RunningCommand
	cancel  context.CancelCauseFunc
	brought chan view.CommandSignal
}

// begin lists a command until the returned function is called. Its context ends when
// somebody stops it, and brought carries the signals sent to it. The id of a running
// command is taken, whoever started it: its signals and its end must not go to another.
func (l *running) begin(ctx context.Context, id string, argv []string) (_ context.Context, brought <-chan view.CommandSignal, unlist func(), err error) {
	line := contract.CommandStarted{Argv: argv}.Line()
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

// Running lists those that have not ended, oldest first.
func (c *Commands) Running() []view.RunningCommand { return c.running.list() }

// StopCommand answers rpc.CommandStop.
func (c *Commands) StopCommand(_ context.Context, id string) error {
	c.running.mu.Lock()
	defer c.running.mu.Unlock()
	r, ok := c.running.by[id]
	if !ok {
		return fault.New("commands.StopCommand", fault.NotFound, "", errors.New("no such command is running"))
	}
	r.cancel(errStopped)
	return nil
}

// maxBrought bounds the signals that wait to be passed to a command.
const maxBrought = 64

// SignalCommand answers rpc.CommandSignal.
func (c *Commands) SignalCommand(_ context.Context, id string, s view.CommandSignal) error {
	const op = "commands.SignalCommand"
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Signal != "" && unix.SignalNum("SIG"+s.Signal) == 0 {
		return &contract.FieldError{Field: "signal", Reason: "is no signal"}
	}
	c.running.mu.Lock()
	defer c.running.mu.Unlock()
	r, ok := c.running.by[id]
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

// Bind binds the methods.
func (c *Commands) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.CommandStop, func(ctx context.Context, _ rpc.Caller, in rpc.OnCommand) (rpc.None, error) {
		return rpc.Done(c.StopCommand(ctx, in.Command))
	})
	rpc.Bind(t, rpc.CommandSignal, func(ctx context.Context, _ rpc.Caller, in rpc.SignalRequest) (rpc.None, error) {
		return rpc.Done(c.SignalCommand(ctx, in.Command, in.Body))
	})
}
