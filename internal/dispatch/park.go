package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// parked is what this process keeps of a run that has waited for its person for long: no box, no goroutine, no story. It goes
// on from the log, as after a restart, when its person says something to it, and when a question of it is to be answered by
// its default.
type parked struct {
	standing          UnderWay
	lost              time.Duration // as the run's
	user, correlation string        // with which its events are signed
	asks              bool          // whether a question of it is open
	looked            bool          // whether it only waits until its user has looked at what it made
	deadline          *awake.Timer  // nil: it waits however long it takes
}

// errNoRun is why nothing can be said to a run that has ended, or never was.
var errNoRun = errors.New("no such run is under way")

// looks is how often per time of parking it is looked which runs have rested for so long.
const looks = 4

// parkIdle parks runs that have waited for their person for Times.Park, until the dispatcher closes.
func (d *Dispatcher) parkIdle() {
	tick := time.NewTicker(max(d.options.Times.Park/looks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		for _, r := range d.underWay() {
			if r.restsFor(d.options.Times.Park) {
				r.park()
			}
		}
	}
}

// underWay returns the runs that are in this process and not parked.
func (d *Dispatcher) underWay() []*run {
	d.mu.Lock()
	defer d.mu.Unlock()
	runs := make([]*run, 0, len(d.runs))
	for _, r := range d.runs {
		runs = append(runs, r)
	}
	return runs
}

// restsFor reports whether the run has done nothing for a time, as far as it is asked again and again.
func (r *run) restsFor(least time.Duration) bool {
	rests := r.place.Rests() && r.removing.Load() == 0
	r.mu.Lock()
	defer r.mu.Unlock()
	if !rests || !waitsForPerson(r.story) {
		r.rested.last = 0
		return false
	}
	if r.rested.last != r.story.Last {
		r.rested.last, r.rested.since = r.story.Last, awake.Now()
	}
	return awake.Now()-r.rested.since >= least
}

// waitsForPerson reports whether nothing of a run goes on until its person says something, and nothing that a box or a
// request holds is lost when the run leaves this process. A loop that is paused has its shell and what that started.
func waitsForPerson(s *story.Run) bool {
	if s.Report != nil || s.Cancelled || s.OpenApprovals() > 0 {
		return false
	}
	waits := s.Paused || openQuestion(s)
	for _, t := range s.Tasks {
		switch {
		case t.Ended() && !(t.Now.Again && t.Now.Number < task.MaxAttempts):
		case t.Now.State != contract.AttemptReviewing || t.Now.Live:
			return false
		default:
			waits = true
		}
	}
	return waits
}

func openQuestion(s *story.Run) bool {
	return slices.ContainsFunc(s.Questions, func(q story.Question) bool { return !q.Answered })
}

// park has the run leave this process, as all runs do when the computer goes to sleep, unless somebody says something to it.
func (r *run) park() {
	if !r.telling.TryLock() {
		return
	}
	defer r.telling.Unlock()
	if !r.restsFor(0) {
		return
	}
	r.parks = true
	r.sleep(task.ErrClosing)
}

// leave is called when nothing of the run goes on any more. It reports whether it has ended, which it has not if it was
// parked or the computer goes to sleep, and whether it is to go on at once: something came while it was being parked.
func (d *Dispatcher) leave(r *run) (ended, goesOn bool) {
	r.telling.RLock()
	parks := r.parks
	r.telling.RUnlock()
	if parks { // what was being stored then has to be known before it is said what the run waits for
		last := d.options.Log.Last()
		if err := r.Until(d.ctx, func(*story.Run) bool { return r.seen >= last }); err != nil && d.ctx.Err() == nil {
			d.log.Warn("whether a run that waits has gone on could not be read", "run", r.story.ID, "error", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, r.story.ID)
	if len(d.runs) == 0 {
		d.feed.Forget()
	}
	if d.closed || !parks {
		return !parks, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.story.Report != nil {
		return true, false
	}
	d.parked[r.story.ID] = r.parked()
	return false, !waitsForPerson(r.story)
}

// parked is what is kept of the run. The caller holds the dispatcher's mu and the run's.
func (r *run) parked() *parked {
	s := r.story
	p := &parked{standing: healthOf(s), lost: r.lost, user: s.User, correlation: s.Correlation, asks: openQuestion(s), looked: onlyLooked(s)}
	p.standing.Reason = strings.Clone(p.standing.Reason) // otherwise it would keep what it was cut from
	if !p.asks || s.Paused {
		return p // a paused run takes its default when it goes on
	}
	left := time.Duration(-1)
	for _, q := range s.Questions {
		if at, err := time.Parse(time.RFC3339, q.Deadline); err == nil && !q.Answered {
			if l := r.patience(q.Lost, at); left < 0 || l < left {
				left = l
			}
		}
	}
	if left >= 0 {
		d, id := r.dispatcher, s.ID
		p.deadline = awake.AfterFunc(left, func() { d.goOn(id) })
	}
	return p
}

// goOn has a parked run go on without anybody having said something to it.
func (d *Dispatcher) goOn(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.parked[id] == nil {
		return
	}
	d.wg.Go(func() {
		if _, err := d.resume(d.ctx, id); err != nil && d.ctx.Err() == nil {
			d.log.Error("a run that waited could not be taken up; what is said to it tries again, and so does the next start", "run", id, "error", err)
		}
	})
}

// forget drops what is kept of a parked run, and returns it; nil if it was not parked. The caller holds mu.
func (d *Dispatcher) forget(id string) *parked {
	p := d.parked[id]
	if p != nil && p.deadline != nil {
		p.deadline.Stop()
	}
	delete(d.parked, id)
	return p
}

// with calls do with a run that has not ended, which is not parked meanwhile. One that was goes on.
func (d *Dispatcher) with(ctx context.Context, id string, do func(*run) error) error {
	for {
		r, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		r.telling.RLock()
		if !r.parks {
			defer r.telling.RUnlock()
			return do(r)
		}
		r.telling.RUnlock()
		select {
		case <-r.away:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *Dispatcher) find(ctx context.Context, id string) (*run, error) {
	d.mu.Lock()
	r, isParked := d.runs[id], d.parked[id] != nil
	d.mu.Unlock()
	if r == nil && isParked {
		var err error
		if r, err = d.resume(ctx, id); err != nil {
			return nil, err
		}
	}
	if r == nil {
		return nil, fault.New("", fault.NotFound, "Only a run that has not ended can be told something.", fmt.Errorf("%w: %q", errNoRun, summary.OneLine(id, 60)))
	}
	return r, nil
}
