package supervise

import (
	"context"
	"time"

	"github.com/thejerf/suture/v4"
)

// State says how a part is.
type State string

// The states of a part.
const (
	Running    State = "running"
	Restarting State = "restarting" // it failed, and is started again after a pause
	Waiting    State = "waiting"    // for what it needs, or for its failure to pass
	GivenUp    State = "failed"     // it failed too often
)

// Health describes a part.
type Health struct {
	Name     string
	State    State
	Since    time.Time // since when it is in this state
	Restarts int       // since it was added
	Reason   string    // why it failed last, if it did not run steadily since, or what it waits for
	PID      int       // its process, 0 if it has none
	Err      error     // the failure that Reason is the text of
}

// Kind is what became of a part.
type Kind int

// What can become of a part.
const (
	Failed    Kind = iota + 1
	Restarted      // it has run steadily since its last failure
	GaveUp         // it failed too often, and is not started again by itself
)

// Report says what became of a part.
type Report struct {
	Part     string
	Kind     Kind
	Err      error // a *PanicError after a panic
	Failures int   // how many there were since the part last ran steadily
	Once     bool  // it was to run once
	Optional bool  // its tree goes on without it
	// Next is how long it takes until it is started again.
	Next time.Duration
}

// First says whether this is not one more failure in a row of which the first was reported.
func (r Report) First() bool { return r.Kind != Failed || r.Failures == 1 }

// part is a Part in its tree.
type part struct {
	Part
	tree  *Tree
	again chan struct{} // has one when somebody wants a part that was given up

	// These are its goroutine's own.
	row    int         // failures in a row that don't pass by themselves
	tries  int         // failures in a row
	recent []time.Time // when it failed of late
	pause  time.Duration

	health Health // guarded by tree.mu
}

// String names the part to suture.
func (p *part) String() string { return p.Name }

// Serve implements suture.Service: one run of the part, after the pause that its failures make
// necessary.
func (p *part) Serve(ctx context.Context) error {
	t := p.tree
	if !t.start(func() bool { t.work.Add(1); return true }) { // Close waits by this, because suture stops waiting for a service after a while
		return suture.ErrDoNotRestart
	}
	defer t.work.Done()
	if p.pause > 0 && !p.rest(ctx, p.pause, false) {
		return ctx.Err()
	}
	p.begun()
	steady := make(chan struct{})
	timer := time.AfterFunc(t.options.SteadyAfter, func() { p.steady(); close(steady) })
	err := Safely(func() error { return p.Run(ctx) })
	if !timer.Stop() {
		<-steady
		p.row, p.tries = 0, 0
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		p.over()
		return suture.ErrDoNotRestart
	case p.failed(err):
		return err
	}
	if !p.Optional {
		t.escalate(givenUp(p.Name, len(p.recent), t.options.Within, err))
		return suture.ErrDoNotRestart
	}
	if !p.rest(ctx, p.Rest, true) {
		return ctx.Err()
	}
	return err
}

// rest waits before the part is started again: for a time, or if that is 0 until somebody wants
// it, and at most until what made it fail may have been mended. afresh says that it then starts
// as if it had not failed before. false: the tree ends.
func (p *part) rest(ctx context.Context, d time.Duration, afresh bool) bool {
	p.pause = 0
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	mended := make(chan struct{})
	if p.Mended != nil {
		p.tree.work.Go(func() {
			if err := Safely(func() error { p.Mended(waits); return nil }); err == nil && waits.Err() == nil {
				close(mended)
			}
		})
	}
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-over:
		if !afresh {
			return true
		}
	case <-p.again:
	case <-mended:
	}
	p.row, p.tries, p.recent = 0, 0, nil
	return true
}

// failed counts and reports a failure, and says whether the part is started again by itself.
func (p *part) failed(err error) bool {
	now, passes := time.Now(), p.Passes != nil && p.Passes(err)
	p.pause = min(p.Backoff<<min(p.tries, 20), p.Most)
	p.tries++
	if passes {
		p.set(func(h *Health) { h.State, h.Since, h.Reason, h.Err = Waiting, now, err.Error(), err })
		return true
	}
	p.row++
	for len(p.recent) > 0 && now.Sub(p.recent[0]) > p.tree.options.Within {
		p.recent = p.recent[1:]
	}
	p.recent = append(p.recent, now)
	r := Report{Part: p.Name, Kind: Failed, Err: err, Failures: p.row, Optional: p.Optional, Next: p.pause}
	state := Restarting
	if len(p.recent) >= p.Limit {
		r.Kind, r.Next, r.Failures, state = GaveUp, 0, len(p.recent), GivenUp
	}
	p.set(func(h *Health) { h.State, h.Since, h.Reason, h.Err = state, now, err.Error(), err })
	if state == GivenUp && p.GaveUp != nil {
		_ = Safely(func() error { p.GaveUp(givenUp(p.Name, r.Failures, p.tree.options.Within, err)); return nil })
	}
	p.tree.report(r)
	return state != GivenUp
}

// begun records that the part runs.
func (p *part) begun() {
	p.set(func(h *Health) {
		if h.State != Running {
			h.State, h.Since = Running, time.Now()
			h.Restarts++
		}
	})
}

// steady records that it runs steadily; after failures this is reported. It runs in the timer's goroutine while the part's
// own runs the part.
func (p *part) steady() {
	p.set(func(h *Health) { h.Reason, h.Err = "", nil })
	if p.row > 0 {
		p.tree.report(Report{Part: p.Name, Kind: Restarted, Failures: p.row, Optional: p.Optional})
	}
}

// over forgets a part that has ended for good.
func (p *part) over() {
	t := p.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	var rest []*part // Health reads the slice that it has found
	for _, other := range t.parts {
		if other != p {
			rest = append(rest, other)
		}
	}
	t.parts = rest
}

func (p *part) set(f func(*Health)) {
	p.tree.mu.Lock()
	defer p.tree.mu.Unlock()
	f(&p.health)
}
