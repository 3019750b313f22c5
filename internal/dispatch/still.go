package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/loops"
	story "choir.dev/choiros/internal/run"
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	for _, r := range d.runs {
		d.wg.Go(func() {
			if !r.place.Rests() || r.asks() {
				r.Stood(g.For, why)
			}
		})
	}
}

// asks reports whether something of the run waits for an answer that has a deadline.
func (r *run) asks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.story.OpenApprovals() > 0 || slices.ContainsFunc(r.story.Questions, func(q story.Question) bool { return !q.Answered })
}

// stood records in the run's story that the run stood still.
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
