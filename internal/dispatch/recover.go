package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
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
		if _, err := d.launch(s, d.takeUp); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// unended folds the runs that begin after a sequence and have not ended, in
// their order.
func (d *Dispatcher) unended(ctx context.Context, after uint64) ([]*story, error) {
	open := map[string]*story{}
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
				s = newStory(e.Run)
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
			s.apply(e, p)
			if s.report != nil {
				delete(open, e.Run)
			}
		}
	}
	var out []*story
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
		if s.id == runID {
			_, err = d.launch(s, d.takeUp)
		}
	}
	return err
}

// takeUp goes on with the tasks of a run that were under way, and waits for
// them: its Director then reads what came of them.
func (d *Dispatcher) takeUp(ctx context.Context, r *run) {
	r.mu.Lock()
	r.steered = 0 // what was said is said again to the new Director
	var todo, over []*taskStory
	for _, t := range r.s.tasks {
		if t.ended() && !r.again(t) {
			t.settled = true
			over = append(over, t)
			continue
		}
		todo = append(todo, t)
	}
	r.mu.Unlock()
	for _, t := range over {
		d.sweep(ctx, r, t)
	}
	for _, t := range todo {
		r.work(t.task.ID, func() (bool, error) { return r.prepare(ctx, t) })
	}
	err := r.until(ctx, func(*story) bool {
		for _, t := range todo {
			if !t.settled {
				return false
			}
		}
		return true
	})
	if err != nil && !errors.Is(err, errClosing) && !errors.Is(err, errCancelled) {
		d.log.Warn("waiting for the tasks of a run that is taken up", "run", r.s.id, "error", err)
	}
}

// sweep drops the overlay that a death between a task's result and its removal
// left behind.
func (d *Dispatcher) sweep(ctx context.Context, r *run, t *taskStory) {
	if t.task.Kind == contract.KindGit || t.attempt == 0 {
		return
	}
	o, err := d.o.Workspace.Reopen(ctx, TaskRef{Run: r.s.id, Task: t.task.ID, Attempt: t.attempt}, t.base)
	if err == nil {
		err = d.o.Workspace.Drop(ctx, o, false)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.log.Warn("the overlay of an ended task could not be removed; it takes up space", "task", t.task.ID, "error", err)
	}
}

// again reports whether the newest result is only that the attempt was
// interrupted, with the next attempt not yet begun. mu is held.
func (r *run) again(t *taskStory) bool {
	return t.last.Status == contract.ResultFailed && t.last.Summary == interrupted && t.last.Attempt < maxAttempts
}

const interrupted = "the computer restarted while this attempt was under way"

// prepare clears up after the attempt that a restart interrupted, and says
// whether it can be resumed.
func (r *run) prepare(ctx context.Context, t *taskStory) (resume bool, err error) {
	r.mu.Lock()
	n, starts, base, live, ended := t.attempt, t.starts, t.base, t.live, t.ended()
	kind := t.task.Kind
	r.mu.Unlock()
	if n == 0 || ended {
		return false, nil // not begun, or already given up
	}
	ws := r.d.o.Workspace
	ref := TaskRef{Run: r.s.id, Task: t.task.ID, Attempt: n}
	if kind == contract.KindAgent && starts < maxStarts {
		if _, err := ws.Reopen(ctx, ref, base); err == nil {
			return true, nil
		} else if fault.Is(err, fault.InUse) {
			return false, fmt.Errorf("a box of the earlier process still holds the task's tree: %w", err)
		}
	}
	// Not resumable: what it showed live is taken back, the tree dropped, and
	// the attempt has its one result.
	if kind != contract.KindGit {
		o, err := ws.Reopen(ctx, ref, base)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return false, err
		default:
			a := &attempt{r: r, ref: ref, overlay: o, live: live}
			if live {
				r.d.liveOpen.Add(1)
			}
			if err := a.undo(); err != nil {
				return false, err
			}
		}
	}
	if err := r.finished(t.task.ID, n, r.broken(t.task.ID, n, contract.ResultFailed, errors.New(interrupted))); err != nil {
		return false, err
	}
	if n >= maxAttempts {
		return false, fmt.Errorf("interrupted by a restart in attempt %d of %d", n, maxAttempts)
	}
	return false, nil
}
