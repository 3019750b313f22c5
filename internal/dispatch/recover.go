package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// page is how many events Recover reads at once.
const page = 500

// Recover takes up every run that has not ended: it folds their stories from
// the log and drives them on. Tasks of kind agent resume from their recorded
// turns with their tree as it stands; the attempts of other kinds are given up
// and made again. It returns when every run is taken up, not when they end. It
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
		if _, err := d.launch(s); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// unended folds the runs that begin after a sequence and have not ended, in
// their order.
func (d *Dispatcher) unended(ctx context.Context, after uint64) ([]*story.Run, error) {
	open := map[string]*story.Run{}
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
				s = story.New(e.Run)
				open[e.Run] = s
				order = append(order, e.Run)
			}
			p, err := d.o.Log.Payload(ctx, e)
			if err != nil {
				if _, known := contract.Lookup(e.Type); !known {
					continue // an event of another version is not about what this one does
				}
				return nil, fmt.Errorf("event %d: %w", e.Sequence, err)
			}
			s.Apply(e, p)
			if s.Report != nil {
				delete(open, e.Run)
			}
		}
	}
	var out []*story.Run
	for _, id := range order {
		if s := open[id]; s != nil {
			out = append(out, s)
		}
	}
	return out, nil
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
		if s.ID == runID {
			_, err = d.launch(s)
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
	if err != nil && !errors.Is(err, errClosing) && !errors.Is(err, errCancelled) {
		r.d.log.Warn("waiting for the tasks of a run that is taken up", "run", r.s.ID, "error", err)
	}
}
