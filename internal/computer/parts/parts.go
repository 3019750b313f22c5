package parts

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// Options of a computer's parts.
type Options struct {
	CID    contract.CID
	Under  *supervise.Tree // the machine's
	Logger *slog.Logger
	// Backoff is the pause after a part's first failure; 0: the tree's own.
	Backoff time.Duration
	// Escalate is called when a part that the computer can't do without was given up: it is to
	// be put to sleep, and no other.
	Escalate func(error)
}

// Parts are the parts of one computer.
type Parts struct {
	*supervise.Tree
	logger *slog.Logger

	mu     sync.Mutex
	record Record
}

// Record appends an event of the system's to the computer's log.
type Record func(ctx context.Context, eventType string, data contract.Payload) error

// New starts an empty tree of parts.
func New(ctx context.Context, o Options) *Parts {
	p := &Parts{logger: o.Logger}
	p.Tree = supervise.New(ctx, supervise.Options{
		Name: string(o.CID), Under: o.Under, Backoff: o.Backoff, Report: p.reported, Escalate: o.Escalate,
		Passes: func(err error) bool { return fault.Is(err, fault.DiskFull) },
	})
	return p
}

// RecordWith makes what becomes of parts events from now on. Before, the computer has not taken
// its log over, and may not write to it.
func (p *Parts) RecordWith(record Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = record
}

// Own runs a part until the computer closes, which can't do without it.
func (p *Parts) Own(what string, f func(context.Context) error) {
	p.Add(supervise.Part{Name: what, Run: f})
}

// reported records what became of a part: in the program's log each time, for the operator, and
// in the computer's log, for its people, only the first of failures in a row and how they ended.
func (p *Parts) reported(ctx context.Context, r supervise.Report) {
	text := contract.Line(fault.Text(r.Err))
	var eventType string
	var data contract.Payload
	switch r.Kind {
	case supervise.Failed:
		p.logger.Error(r.Part+" failed", "error", r.Err, "in_row", r.Failures, "again_in", r.Next, "stack", supervise.Stack(r.Err))
		eventType, data = "service.failed", contract.ServiceFailed{Service: r.Part, Error: text, InRow: r.Failures, Again: !r.Once}
	case supervise.Restarted:
		p.logger.Info(r.Part+" runs again", "failures", r.Failures)
		eventType, data = "service.restarted", contract.ServiceRestarted{Service: r.Part, Failures: r.Failures}
	case supervise.GaveUp:
		p.logger.Error(r.Part+" is given up", "error", r.Err, "failures", r.Failures, "optional", r.Optional, "stack", supervise.Stack(r.Err))
		eventType, data = "service.gave_up", contract.ServiceGaveUp{Service: r.Part, Error: text, Failures: r.Failures, Sleeps: !r.Optional}
	}
	p.mu.Lock()
	record := p.record
	p.mu.Unlock()
	if record == nil || !r.First() {
		return
	}
	if err := record(ctx, eventType, data); err != nil {
		p.logger.Warn("what became of a part could not be recorded", "part", r.Part, "event", eventType, "error", err)
	}
}

// Notes lists, for people, the parts that don't run as they should.
func (p *Parts) Notes() []string {
	var out []string
	for _, h := range p.Health() {
		since := h.Since.Format("15:04")
		switch {
		case h.Err == nil:
		case h.State == supervise.GivenUp:
			out = append(out, fmt.Sprintf("%s failed too often and is not started again since %s: %s", h.Name, since, line(h)))
		case h.State == supervise.Restarting:
			out = append(out, fmt.Sprintf("%s failed at %s and is started again: %s", h.Name, since, line(h)))
		case h.State == supervise.Waiting:
			out = append(out, fmt.Sprintf("%s waits since %s: %s", h.Name, since, line(h)))
		}
	}
	return out
}

func line(h supervise.Health) string {
	if h.Err == nil {
		return h.Reason
	}
	return contract.Line(fault.Text(h.Err))
}

// Shown lists the parts of a tree as people and programs see them.
func Shown(t *supervise.Tree) []view.Part {
	all := t.Health()
	out := make([]view.Part, 0, len(all))
	for _, h := range all {
		out = append(out, view.Part{Name: h.Name, State: view.PartState(h.State), Since: h.Since, Restarts: h.Restarts, Reason: line(h), PID: h.PID})
	}
	return out
}

// Bind binds how a computer is, for its own desktop: without processes, which are the machine's.
func (*Parts) Bind(t rpc.Table, health func(context.Context) (view.ComputerHealth, error)) {
	rpc.Bind(t, rpc.ComputerHealth, func(ctx context.Context, _ rpc.Caller, _ rpc.Of) (view.ComputerHealth, error) {
		h, err := health(ctx)
		for i := range h.Parts {
			h.Parts[i].PID = 0
		}
		return h, err
	})
}
