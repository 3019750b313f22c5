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
	still             time.Duration // the dispatcher's, when it was parked
	user, correlation string        // with which its events are signed
	asks, otherwise   string        // its open question whose default comes first, and that default; "" if none is open
	looked            bool          // whether it only waits until its user has looked at what it made
	deadline          *awake.Timer  // of that question; nil if there is none
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
	rests := r.place.Rests() && r.removing.Load() == 0 && r.held.Load() == 0
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
	if !summary.Resumes(s) {
		return false
	}
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
	var unread error
	if parks { // what was being stored then has to be known before it is said what the run waits for
		last := d.options.Log.Last()
		unread = r.Until(d.ctx, func(*story.Run) bool { return r.seen >= last })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, r.story.ID)
	d.left++
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
	return false, unread != nil || !waitsForPerson(r.story)
}

// parked is what is kept of the run. The caller holds the dispatcher's mu and the run's.
func (r *run) parked() *parked {
	s := r.story
	p := &parked{standing: healthOf(s), lost: max(r.lost, s.Lost), still: time.Duration(r.dispatcher.still.Load()), user: s.User, correlation: s.Correlation, looked: onlyLooked(s)}
	p.standing.Reason = strings.Clone(p.standing.Reason) // otherwise it would keep what it was cut from
	var left time.Duration
	for _, q := range s.Questions {
		if at, err := time.Parse(time.RFC3339, q.Deadline); err == nil && !q.Answered {
			if l := r.patience(q.Lost, at); p.asks == "" || l < left {
				p.asks, p.otherwise, left = q.ID, q.Default, l
			}
		}
	}
	if p.asks != "" {
		d, id := r.dispatcher, s.ID
		p.deadline = awake.AfterFunc(left, func() { d.goOn(id, p) })
	}
	return p
}

// goOn has a parked run go on without anybody having said something to it, once that can be done. late is what was kept of it
// when the time of its question is up, nil if that is not why: the question is answered by its default first, for which the
// run needs neither a slot nor its pause to end.
func (d *Dispatcher) goOn(id string, late *parked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parked[id]
	if d.closed || p == nil || late != nil && late != p {
		return
	}
	d.wg.Go(func() {
		for pause, isParked := followPause, true; isParked; pause = min(2*pause, followMost) {
			var err error
			if late != nil {
				err = d.byDefault(id, p)
			}
			if err == nil {
				_, err = d.resume(d.ctx, id)
			}
			if err == nil || d.ctx.Err() != nil {
				return
			}
			d.log.Error("a run that waited could not be taken up; it is tried again", "run", id, "after", pause, "error", err)
			if !awake.Pause(d.ctx, pause) {
				return
			}
			d.mu.Lock()
			isParked = d.parked[id] == p // otherwise somebody has taken it up
			d.mu.Unlock()
		}
	})
}

// byDefault answers the question of a parked run with its default, unless somebody has answered it.
func (d *Dispatcher) byDefault(id string, p *parked) error {
	by := contract.System()
	by.On = p.user
	_, err := d.options.Log.Append(d.ctx, contract.Draft{Actor: by, Type: "question.answered", Subject: "answer/" + p.asks, Run: id, Correlation: p.correlation,
		Expect: &contract.Expect{Last: 0}, Data: &contract.QuestionAnswered{Question: p.asks, Answer: p.otherwise, Default: true}})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
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
	r, isParked, closed := d.runs[id], d.parked[id] != nil, d.closed
	d.mu.Unlock()
	if r == nil && closed {
		return nil, errAsleep()
	}
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
