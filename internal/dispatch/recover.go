package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// page is how many events Recover reads at once.
const page = 500

// Recover takes up every run that has not ended: it folds their stories from
// the log and drives them on. Tasks of kind agent resume from their recorded
// turns with their tree as it stands; the attempts of other kinds are given up
// and made again. A run of which something can't be read any more is ended, and
// says so. It returns when every run is taken up, not when they end. It
// must be called once, before the first Submit, when no box of an earlier
// process lives any more and the workspace has recovered its publishes.
func (d *Dispatcher) Recover(ctx context.Context) error {
	const op = "dispatch.Recover"
	after := uint64(0)
	if d.o.Unfinished != nil {
		seqs, err := d.o.Unfinished(ctx)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if len(seqs) == 0 {
			return nil
		}
		after = slices.Min(seqs) - 1
	}
	open, err := d.unended(ctx, after)
	if err != nil {
		return fault.Wrap(op, err)
	}
	for _, s := range open {
		if _, err := d.launch(s.story, s.lost...); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// interruptedRun is a run that has not ended, as the log tells it.
type interruptedRun struct {
	story *story.Run
	lost  []lostEvent
}

// lostEvent is an event whose data can't be had any more.
type lostEvent struct {
	contract.Event
	why error
}

// unended folds the runs that begin after a sequence and have not ended, in
// their order.
func (d *Dispatcher) unended(ctx context.Context, after uint64) ([]*interruptedRun, error) {
	open := map[string]*interruptedRun{}
	var order []string
	for last := d.o.Log.Last(); after < last; {
		events, err := d.o.Log.Read(ctx, after, page)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Sequence
			if e.Run == "" {
				continue
			}
			s := open[e.Run]
			if s == nil {
				if e.Type != "prompt.submitted" {
					continue // of a run that began before the first unfinished one
				}
				s = &interruptedRun{story: story.New(e.Run)}
				open[e.Run] = s
				order = append(order, e.Run)
			}
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
				delete(open, e.Run)
			}
		}
	}
	var out []*interruptedRun
	for _, id := range order {
		if s := open[id]; s != nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// payload reads an event's data, nil for a type that this version does not
// know: it is about nothing that it does. why says that they can't be had, also
// after some tries where another one may help: then the event is lost, and not
// everything else with it. err is only that ctx has ended.
func (d *Dispatcher) payload(ctx context.Context, e contract.Event) (p contract.Payload, why, err error) {
	for pause, try := followPause, 1; ; pause, try = 2*pause, try+1 {
		p, why = d.o.Log.Payload(ctx, e)
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
		list = append(list, fmt.Sprintf("event %d (%s): %s", l.Sequence, l.Type, oneLine(fault.Text(l.why), 300)))
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

// takeUpOne goes on with a run that is in the log since sequence, if it has not
// ended and nobody drives it: its prompt was stored and the answer lost.
func (d *Dispatcher) takeUpOne(ctx context.Context, runID string, sequence uint64) error {
	d.mu.Lock()
	driven := d.runs[runID] != nil
	d.mu.Unlock()
	if driven {
		return nil
	}
	if d.o.Unfinished != nil {
		if seqs, err := d.o.Unfinished(ctx); err != nil || !slices.Contains(seqs, sequence) {
			return err
		}
	}
	open, err := d.unended(ctx, sequence-1)
	if err != nil {
		return err
	}
	for _, s := range open {
		if s.story.ID == runID {
			_, err = d.launch(s.story, s.lost...)
		}
	}
	return err
}

// takeUp goes on with the tasks of a run that were under way, and waits for
// them: its Director then reads what came of them. What is to be done with an
// attempt its state alone says.
func (r *run) takeUp(ctx context.Context) {
	r.mu.Lock()
	r.steered = 0 // what was said is said again to the new Director
	var todo, over []*story.Task
	for _, t := range r.s.Tasks {
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
		r.d.log.Warn("waiting for the tasks of a run that is taken up", "run", r.s.ID, "error", err)
	}
}
