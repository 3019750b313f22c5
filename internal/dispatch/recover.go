package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// Recover continues every run that has not ended: it computes their stories from the log and drives them
// on. Tasks of kind agent resume from their recorded turns with their tree as it stands; the attempts of
// other kinds are given up and made again. A run that depends on events that can't be read any more is
// ended with a report that says so. Recover returns when every run has been started, not when they end.
// It must be called once, before the first Submit, when no box of an earlier process runs any more and
// the workspace has recovered its publishes.
func (d *Dispatcher) Recover(ctx context.Context) error {
	const op = "dispatch.Recover"
	runs, err := d.options.Past.Unfinished(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	var open []*interruptedRun
	var kept []ports.TaskRef
	known := true // whether all overlays that are still needed are known
	for _, id := range runs {
		s, err := d.unended(ctx, id)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if s == nil {
			known = false
			continue
		}
		known = known && len(s.lost) == 0
		open = append(open, s)
		for _, t := range s.story.Tasks {
			kept = append(kept, ports.TaskRef{Run: id, Task: t.Request.ID, Attempt: max(t.Now.Number, 1)})
		}
	}
	// Runs and later attempts do not wait for the removal of overlays, so a crash may leave overlays of
	// attempts that nobody continues.
	if known {
		if err := d.options.Workspace.Sweep(ctx, kept); err != nil {
			d.log.Warn("what ended tasks left could not be removed; it takes up space", "error", err)
		}
	}
	for _, s := range open {
		if _, err := d.launch(s); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// resume continues a run from the log, and returns it; nil if it has ended. What can't be read just now is an error, and not lost.
func (d *Dispatcher) resume(ctx context.Context, id string) (*run, error) {
	for {
		d.mu.Lock()
		r, left := d.runs[id], d.left
		d.mu.Unlock()
		if r != nil {
			return r, nil
		}
		s, err := d.unended(ctx, id)
		if err != nil {
			return nil, err
		}
		if s != nil {
			for _, l := range s.lost {
				if !blob.Gone(l.why) && !fault.Is(l.why, fault.Invalid) {
					return nil, fault.New("", fault.Unavailable, "Try again.", fmt.Errorf("event %d of the run can't be read now: %w", l.Sequence, l.why))
				}
			}
		}
		if s == nil {
			d.mu.Lock()
			p := d.forget(id) // it ended while it was being parked
			d.mu.Unlock()
			if p != nil {
				d.options.Models.Forget(id)
			}
			return nil, nil
		}
		s.old = func() bool { return d.left != left } // others may have taken it up meanwhile, and it may have ended
		if r, err = d.launch(s); r != nil || err != nil {
			return r, err
		}
	}
}

// interruptedRun is a run that has not ended, as found in the log.
type interruptedRun struct {
	story *story.Run
	lost  []lostEvent
	upTo  uint64 // the sequence up to which the log was read
	// old reports whether the run may have gone on since; nil: it has not. It is called with the dispatcher's mu.
	old func() bool
}

// lostEvent is an event whose data can't be read any more.
type lostEvent struct {
	contract.Event
	why error
}

// unended computes a run's story from the log; nil when the run has ended, or its first event is not its
// prompt.
func (d *Dispatcher) unended(ctx context.Context, run string) (*interruptedRun, error) {
	s := &interruptedRun{story: story.New(run)}
	for first, more := true, true; more; {
		events, next, again, err := d.options.Past.RunEvents(ctx, run, s.upTo)
		if err != nil {
			return nil, err
		}
		if first && (len(events) == 0 || events[0].Type != "prompt.submitted") {
			return nil, nil
		}
		for _, e := range events {
			p, why, err := d.payload(ctx, e)
			switch {
			case err != nil:
				return nil, err
			case why != nil:
				s.story.Lose(e)
				s.lost = append(s.lost, lostEvent{e, why})
			case p != nil:
				s.story.Apply(e, p)
			}
			if s.story.Report != nil {
				return nil, nil
			}
		}
		s.upTo, first, more = next, false, again
	}
	return s, nil
}

// payload reads an event's data; nil for an event type that this version does not know and therefore does
// not use. why is set if the data can't be read, after several tries where trying again may help; then
// only this event is lost. err is set only when ctx has ended.
func (d *Dispatcher) payload(ctx context.Context, e contract.Event) (p contract.Payload, why, err error) {
	for pause, try := followPause, 1; ; pause, try = 2*pause, try+1 {
		p, why = d.options.Log.Payload(ctx, e)
		if why == nil {
			return p, nil, nil
		}
		if _, known := contract.Lookup(e.Type); !known {
			return nil, nil, nil
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if blob.Gone(why) || fault.Is(why, fault.Invalid) || try == followTries {
			return nil, why, nil
		}
		d.log.Warn("an event can't be read and is tried again", "event", e.Sequence, "after", pause, "error", why)
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// lostError is why a run ends that depends on events which can't be read any more: nobody knows how to
// continue it.
type lostError struct{ events []lostEvent }

func (e *lostError) Error() string {
	var list []string
	for _, l := range e.events[:min(len(e.events), 5)] {
		list = append(list, fmt.Sprintf("event %d (%s): %s", l.Sequence, l.Type, summary.OneLine(fault.Text(l.why), 300)))
	}
	if n := len(e.events) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("and %d more", n))
	}
	return "part of what the log has of this run can't be read any more: " + strings.Join(list, "; ")
}

// matters returns the error for those lost events that the run depends on, nil when there are none. The
// caller holds the run's mu, or is the only one to have the run.
func matters(s *story.Run, lost []lostEvent) *lostError {
	lost = slices.DeleteFunc(slices.Clone(lost), func(l lostEvent) bool { return !s.Matters(l.Event) })
	if len(lost) == 0 {
		return nil
	}
	return &lostError{lost}
}

// takeUpOne continues a run whose prompt was stored although its answer was lost, unless the run has
// ended or is driven already.
func (d *Dispatcher) takeUpOne(ctx context.Context, runID string) error {
	d.mu.Lock()
	driven := d.runs[runID] != nil || d.parked[runID] != nil
	d.mu.Unlock()
	if driven {
		return nil
	}
	_, err := d.resume(ctx, runID)
	return err
}

// takeUp continues the tasks of a run that were under way, and waits for them, so that its Director then
// reads their results; not longer than the run has time. An attempt's state alone says what is to be done with it.
func (r *run) takeUp(ctx context.Context) {
	r.mu.Lock()
	var todo, over []*story.Task
	for _, t := range r.story.Tasks {
		if t.Ended() {
			over = append(over, t)
		}
		if t.Ended() && !(t.Now.Again && t.Now.Number < task.MaxAttempts) {
			r.settled[t.Request.ID] = true
			continue
		}
		todo = append(todo, t)
	}
	r.mu.Unlock()
	for _, t := range over {
		// A crash between a result and the removal of its overlay may have left the overlay, also when
		// another attempt follows.
		task.Discard(r.dispatcher.host, r, t.Request.ID)
	}
	for _, t := range todo {
		r.work(t.Request.ID)
	}
	err := r.inTime(ctx, func(*story.Run) bool {
		for _, t := range todo {
			if !r.settled[t.Request.ID] {
				return false
			}
		}
		return true
	})
	if err != nil && !fault.Is(err, fault.Exhausted) && r.ctx.Err() == nil {
		r.dispatcher.log.Warn("waiting for the tasks of a run that is taken up", "run", r.story.ID, "error", err)
	}
}
