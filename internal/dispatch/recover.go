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
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// Recover takes up every run that has not ended: it folds their stories from
// the log and drives them on. Tasks of kind agent resume from their recorded
// turns with their tree as it stands; the attempts of other kinds are given up
// and made again. A run of which something can't be read any more is ended, and
// says so. It returns when every run is taken up, not when they end. It
// must be called once, before the first Submit, when no box of an earlier
// process lives any more and the workspace has recovered its publishes.
func (d *Dispatcher) Recover(ctx context.Context) error {
	const op = "dispatch.Recover"
	runs, err := d.options.Past.Unfinished(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	var open []*interruptedRun
	var kept []ports.TaskRef
	known := true // whose every overlay is
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
	// A run's report and a task's next attempt wait for no overlay to be removed,
	// so that a death may leave those of attempts that nobody takes up.
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

// resume goes on with a run as the log tells it, unless it has ended.
func (d *Dispatcher) resume(ctx context.Context, run string) error {
	s, err := d.unended(ctx, run)
	if err == nil && s != nil {
		_, err = d.launch(s)
	}
	return err
}

// interruptedRun is a run that has not ended, as the log tells it.
type interruptedRun struct {
	story *story.Run
	lost  []lostEvent
	upTo  uint64 // the sequence up to which the log was looked at
}

// lostEvent is an event whose data can't be had any more.
type lostEvent struct {
	contract.Event
	why error
}

// unended folds a run; nil when it has ended, or does not begin with its prompt.
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

// payload reads an event's data, nil for a type that this version does not
// know: it is about nothing that it does. why says that they can't be had, also
// after some tries where another one may help: then the event is lost, and not
// everything else with it. err is only that ctx has ended.
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

// lostError is why a run ends of which something that matters can't be read any
// more: nobody can say how to go on with it.
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

// matters is the error of those lost events on which it hangs how the run goes
// on, nil when it hangs on none. The run's mu is held, or nobody else has it.
func matters(s *story.Run, lost []lostEvent) *lostError {
	lost = slices.DeleteFunc(slices.Clone(lost), func(l lostEvent) bool { return !s.Matters(l.Event) })
	if len(lost) == 0 {
		return nil
	}
	return &lostError{lost}
}

// takeUpOne goes on with a run that is in the log, if it has not
// ended and nobody drives it: its prompt was stored and the answer lost.
func (d *Dispatcher) takeUpOne(ctx context.Context, runID string) error {
	d.mu.Lock()
	driven := d.runs[runID] != nil
	d.mu.Unlock()
	if driven {
		return nil
	}
	return d.resume(ctx, runID)
}

// takeUp goes on with the tasks of a run that were under way, and waits for
// them: its Director then reads what came of them. What is to be done with an
// attempt its state alone says.
func (r *run) takeUp(ctx context.Context) {
	r.mu.Lock()
	r.steered = 0 // what was said is said again to the new Director
	var todo, over []*story.Task
	for _, t := range r.story.Tasks {
		if t.Ended() {
			over = append(over, t)
		}
		if t.Ended() && !(t.Now.Again && t.Now.Number < maxAttempts) {
			r.settled[t.Request.ID] = true
			continue
		}
		todo = append(todo, t)
	}
	r.mu.Unlock()
	for _, t := range over {
		// An overlay that a death between a result and its removal left, also when
		// another attempt follows.
		a := r.at(t.Request.ID, max(t.Now.Number, 1))
		a.now = t.Now
		a.discard()
	}
	for _, t := range todo {
		r.work(t.Request.ID)
	}
	err := r.until(ctx, func(*story.Run) bool {
		for _, t := range todo {
			if !r.settled[t.Request.ID] {
				return false
			}
		}
		return true
	})
	if err != nil && r.ctx.Err() == nil {
		r.dispatcher.log.Warn("waiting for the tasks of a run that is taken up", "run", r.story.ID, "error", err)
	}
}
