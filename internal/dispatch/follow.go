package dispatch

import (
	"context"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	story "choir.dev/choiros/internal/run"
)

// The first two are how long following the log pauses after an error, at first and at most; followTries
// is how often an event that can't be read is tried.
const (
	followPause = 50 * time.Millisecond
	followMost  = 5 * time.Second
	followTries = 6
)

// follow keeps the run's story up to date with the log until ctx ends: with what this process appended
// for the run, in whatever order its calls return, and with what others appended, such as the workspace.
func (r *run) follow(ctx context.Context) {
	r.mu.Lock()
	after := r.seen
	r.mu.Unlock()
	for pause, tries := followPause, 0; ctx.Err() == nil; pause = min(2*pause, followMost) {
		was := after
		err := r.read(ctx, &after)
		if ctx.Err() != nil {
			return
		}
		if after > was {
			pause, tries = followPause, 0
		}
		if tries++; tries == followTries {
			r.unfollowed(fmt.Errorf("the run's events can't be read: %w", err))
			return
		}
		r.dispatcher.log.Warn("following a run's events ended and will be tried again", "run", r.story.ID, "after", pause, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// caughtUp waits until the stories of all runs contain what the log contains now, and returns the runs. Of those that are
// parked there is nothing that others ask.
func (d *Dispatcher) caughtUp(ctx context.Context) ([]*run, error) {
	last := d.options.Log.Last()
	runs := d.underWay()
	for _, r := range runs {
		err := r.Until(ctx, func(*story.Run) bool { return r.seen >= last })
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx) // otherwise the run has ended, and its story is complete
		}
	}
	return runs, nil
}

// unfollowed records that the story does not grow any more, and why.
func (r *run) unfollowed(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = why
	r.touch()
}

// read applies the log's events behind after to the story until there is an error.
func (r *run) read(ctx context.Context, after *uint64) error {
	for e, err := range r.dispatcher.options.Log.Follow(ctx, *after) {
		if err != nil {
			return err
		}
		if e.Run == r.story.ID {
			if err := r.apply(ctx, e); err != nil {
				return err
			}
		}
		tells := r.dispatcher.feed.Add(*after, e)
		*after = e.Sequence
		r.mu.Lock()
		r.seen = e.Sequence
		if tells {
			r.live = e.Sequence
		}
		r.touch()
		r.mu.Unlock()
	}
	return fmt.Errorf("the log ended behind event %d", *after)
}

// apply adds one event to the story. If the event's data can't be read any more and the run depends on
// them, the run is ended.
func (r *run) apply(ctx context.Context, e contract.Event) error {
	p, why, err := r.dispatcher.payload(ctx, e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	switch {
	case why != nil:
		r.story.Lose(e)
		if gone := matters(r.story, []lostEvent{{e, why}}); gone != nil {
			r.cancel(gone)
		}
	case p != nil:
		r.story.Apply(e, p)
	}
	r.mu.Unlock()
	r.doc.Dirty()
	return nil
}
