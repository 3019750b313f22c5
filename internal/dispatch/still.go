package dispatch

import (
	"context"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/loops"
)

// tellStill is for how long choir must have stood still for its runs to report it.
const tellStill = 5 * time.Second

// stoodStill is called after this process did not run for a while, because the machine was suspended or
// the process stopped. Runs that wait for a person lost nothing by that, except time to answer.
func (d *Dispatcher) stoodStill(g awake.Gap) {
	if g.For < tellStill {
		return
	}
	why := contract.StoodStopped
	if g.Why == awake.Suspended {
		why = contract.StoodSuspended
	}
	d.log.Warn("choir stood still; what it waits for is given the time that it lost", "for", g.For.Round(time.Second), "why", why)
	d.still.Add(int64(g.For)) // whoever takes a parked run up just now has to know it
	// Whoever reads the clock may hold what is needed here, and the dispatcher may be closing: what is begun, and waited for, is
	// begun with mu, unless it is closed.
	go d.allStood(g.For, why)
}

// allStood records that runs stood still, and has the questions of those that are not parked wait for as long as that was, at once.
func (d *Dispatcher) allStood(still time.Duration, why contract.StoodWhy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	for _, r := range d.runs {
		if r.place.Rests() && !r.asks() {
			continue
		}
		r.mu.Lock()
		r.lost = max(r.lost, r.story.Lost) + still
		r.mu.Unlock()
		d.wg.Go(func() { r.Stood(still, why) })
	}
	for id, p := range d.parked {
		if p.asks != "" {
			d.wg.Go(func() { d.stood(id, p, still, why) })
		}
	}
}

// asks reports whether something of the run waits for an answer that has a deadline.
func (r *run) asks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.story.OpenApprovals() > 0 || openQuestion(r.story)
}

// stood records in the log that a parked run stood still, so that its question is not answered by its default too early.
func (d *Dispatcher) stood(id string, p *parked, still time.Duration, why contract.StoodWhy) {
	ctx, cancel := awake.WithTimeout(d.ctx, d.options.Times.CleanUp)
	defer cancel()
	by := contract.System()
	by.On = p.user
	_, err := d.options.Log.Append(ctx, contract.Draft{Actor: by, Type: "run.stood", Subject: id, Run: id, Correlation: p.correlation, Data: &contract.RunStood{ForMS: still.Milliseconds(), Why: why}})
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn("it could not be said that a run stood still", "run", id, "for", still, "error", err)
	}
}

// Stood records in the run's story that the run stood still.
func (r *run) Stood(d time.Duration, why contract.StoodWhy) {
	ctx, cancel := awake.WithTimeout(context.WithoutCancel(r.ctx), r.dispatcher.options.Times.CleanUp)
	defer cancel()
	_, err := r.Append(ctx, contract.Draft{Actor: contract.System(), Type: "run.stood", Subject: r.story.ID, Data: &contract.RunStood{ForMS: d.Milliseconds(), Why: why}})
	if err != nil && !r.closing() {
		r.dispatcher.log.Warn("it could not be said that a run stood still", "run", r.story.ID, "for", d, "error", err)
	}
}

// silent records in the run's story that a box stood still, if that is what err says, and returns err.
func (r *run) silent(err error) error {
	var s *loops.SilentError
	if errors.As(err, &s) && r.ctx.Err() == nil {
		r.Stood(s.For, contract.StoodBox)
	}
	return err
}
