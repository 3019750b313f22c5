package fleet

import (
	"context"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/computer/parts"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// This file keeps the machine's own parts running, and says how machine and computers are.

// partsAgain is how long a part of the machine that was given up rests before it is started
// again: the process goes on without, and nothing else would start it.
const partsAgain = 10 * time.Minute

// openParts starts the machine's tree, under which the computers' are.
func (fl *Fleet) openParts(ctx context.Context) {
	fl.parts = supervise.New(ctx, supervise.Options{Name: "machine", Report: fl.partReported})
	fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx))
	fl.machine.Parts = fl.parts
}

// own runs a part of the machine until the fleet closes.
func (fl *Fleet) own(name string, run func(context.Context) error) {
	fl.parts.Add(supervise.Part{Name: name, Run: run, Optional: true, Rest: partsAgain})
}

func (fl *Fleet) partReported(_ context.Context, r supervise.Report) {
	switch r.Kind {
	case supervise.Restarted:
		fl.Logger.Info(r.Part+" runs again", "failures", r.Failures)
	default:
		fl.Logger.Error(r.Part+" failed", "error", r.Err, "in_row", r.Failures, "again_in", r.Next, "given_up", r.Kind == supervise.GaveUp, "stack", supervise.Stack(r.Err))
	}
}

// Machine implements control.System. It asks nothing that takes a while: space and accounts are as
// they were last found.
func (fl *Fleet) Machine(context.Context) []view.Part {
	store := view.Part{Name: "log", State: view.PartRunning}
	if err := fl.Bus.Health(); err != nil {
		store.State, store.Reason, store.Hint = view.PartFailed, fault.Text(err), fault.HintOf(err)
	}
	out := []view.Part{store}
	u := &fl.upkeep
	u.mu.Lock()
	for _, f := range []view.Finding{u.space, u.accounts} {
		if f.ID == "" {
			continue // it was not looked at yet
		}
		p := view.Part{Name: f.ID, State: view.PartRunning}
		if f.Status != "ok" {
			p.State, p.Reason, p.Hint, p.Since = view.PartFailed, f.Detail, f.Hint, u.since[f.ID]
		}
		out = append(out, p)
	}
	u.mu.Unlock()
	if fl.parts == nil {
		return out
	}
	return append(out, parts.Shown(fl.parts)...)
}

// Health implements control.Computers. Of a computer that is not awake nothing is opened.
func (fl *Fleet) Health(ctx context.Context, cids []contract.CID) ([]view.ComputerHealth, error) {
	wanted := make(map[contract.CID]bool, len(cids))
	for _, cid := range cids {
		wanted[cid] = true
	}
	fl.mu.Lock()
	places := make([]place, 0, len(cids))
	for _, cid := range fl.order {
		if p := fl.find(cid); p != nil && wanted[cid] {
			places = append(places, *p)
		}
	}
	fl.mu.Unlock()
	out := make([]view.ComputerHealth, 0, len(places))
	for _, p := range places {
		h, err := fl.health(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

func (fl *Fleet) health(ctx context.Context, p place) (view.ComputerHealth, error) {
	if p.state == view.StateAwake {
		return p.computer.Health(ctx)
	}
	return view.ComputerHealth{ID: p.cid, Name: p.name, State: p.state, Trouble: fl.trouble(p)}, nil
}

// partsFailed puts a computer to sleep that can't do without a part that was given up. The
// others are not affected; this one shows the reason until it is woken again.
func (fl *Fleet) partsFailed(c *computer.Computer, err error) {
	err = fault.New("", fault.Unavailable, "Try again, which wakes it; the server's log says more.", fmt.Errorf("it was put to sleep: %w", err))
	fl.mu.Lock()
	p := fl.places[c.CID()]
	if fl.closed.Load() || p == nil || p.computer != c || p.apart != nil {
		fl.mu.Unlock()
		return // it is being closed anyway, or belongs to whoever opened it
	}
	if p.err = err; p.state == view.StateWaking {
		fl.mu.Unlock()
		return // settle notices it
	}
	fl.closing.Add(1)
	defer fl.closing.Done()
	p.computer, p.state = nil, view.StateFailed
	p.close(c)
	if time.Since(p.since) > wakeSteady {
		p.tries = 0
	}
	fl.retry(p)
	name, state := p.name, p.state
	fl.mu.Unlock()
	fl.log(c).Error("the computer is put to sleep", "because", err)
	fl.reportState(c.CID(), name, state, err)
	fl.closeComputer(c)
}
