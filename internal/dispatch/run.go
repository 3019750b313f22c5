package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/dispatch/outside"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/rundoc"
	"choir.dev/choiros/internal/dispatch/scribe"
	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// overLook is how often a run whose clock stands is asked at most whether its time is used up.
const overLook = 250 * time.Millisecond

// run is one run under way. Its story is guarded by mu and grows by what follow reads from the log, in
// the log's order; changed is closed and replaced whenever it grows.
type run struct {
	dispatcher *Dispatcher
	// awake ends when the run leaves this process without having ended: the dispatcher closes, or sleep is called.
	awake  context.Context
	sleep  context.CancelCauseFunc // ends ctx, too
	ctx    context.Context         // ends with awake, and when the run is cancelled or ends
	cancel context.CancelCauseFunc
	doc    *rundoc.Writer
	tasks  sync.WaitGroup // goroutines that work on tasks
	drops  sync.WaitGroup // overlays of ended attempts that are being removed
	place  slots.Slot     // the run's slot among the runs that go on
	// The run's clock: worked is how long it had worked when this process took it up, since is when that was, and
	// lost is for how long nobody could have been answered before that.
	worked time.Duration
	since  time.Duration
	lost   time.Duration

	mu        sync.Mutex
	story     *story.Run
	changed   chan struct{}
	idle      time.Duration          // how long it was paused, or waited for the user
	idleSince time.Duration          // when the newest such time began
	idles     bool                   // whether it is paused or waits now
	waits     []*wait                // what its Director, its tasks and its loops wait for, oldest first
	another   chan struct{}          // closed and replaced when the user chooses another model
	ended     bool                   // whether no further task may begin
	settled   map[string]bool        // tasks that nobody works on any more
	reads     map[string]int         // how often a page was to be read, by its address
	seen      uint64                 // the sequence up to which the log was read
	places    map[string]*slots.Slot // the slots of its tasks, by task id
	unread    error                  // why the story does not grow any more
	live      uint64                 // the newest event, up to seen, that may say of live files that they changed
	watches   map[ports.TaskRef]*meanwhile.Watch

	hearing hearing
	// telling is held for reading while somebody says something to the run, and for writing while it is decided that it is
	// parked.
	telling  sync.RWMutex
	parks    bool          // whether it is being parked, and takes no more words
	away     chan struct{} // closed when it is neither under way nor being parked any more
	rested   rested
	removing atomic.Int32 // how many of drops go on
	held     atomic.Int32 // how many answers of its Director's model wait until the run goes on
	queues   bool         // whether it was taken up and waits for a slot; guarded by mu
}

// rested is since when a run rests, and the newest event that it had then.
type rested struct {
	last  uint64
	since time.Duration
}

func newRun(d *Dispatcher, s *story.Run, seen uint64) *run {
	r := &run{dispatcher: d, story: s, changed: make(chan struct{}), another: make(chan struct{}), away: make(chan struct{}), settled: map[string]bool{}, reads: map[string]int{}, places: map[string]*slots.Slot{}, place: slots.Slot{Slots: d.slots}, seen: seen,
		live: seen, watches: map[ports.TaskRef]*meanwhile.Watch{}} // what came before this process took it up may have any
	r.awake, r.sleep = context.WithCancelCause(d.ctx)
	r.ctx, r.cancel = context.WithCancelCause(r.awake)
	r.worked, r.since = s.Worked(), awake.Now()
	if !s.Newest.IsZero() {
		r.lost = s.Lost + max(0, d.options.Now().Sub(s.Newest))
	}
	r.doc = rundoc.New(rundoc.Options{Documents: d.options.Documents, Log: d.log, View: r.Story})
	if s.Cancelled {
		r.cancel(task.ErrCancelled)
	}
	if s.Paused {
		r.idleSince, r.idles = r.since, true
	}
	return r
}

// CountRead implements task.Run.
func (r *run) CountRead(address string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads[address]++
	return r.reads[address]
}

// append stores events of this run. When it returns, the run's story contains them and everything that
// the log has before them.
func (r *run) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	r.sign(drafts)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The story must contain what is stored, so an append that was begun is waited for even if the box
	// that asked for it has ended, unless the run leaves this process.
	ctx, cancel := untilBoth(ctx, r.awake)
	defer cancel()
	es, err := r.dispatcher.options.Log.Append(ctx, drafts...)
	if err != nil {
		return nil, err
	}
	last := uint64(0)
	for _, e := range es {
		last = max(last, e.Sequence)
	}
	if err := r.Until(ctx, func(s *story.Run) bool { return s.Last >= last }); err != nil {
		return nil, err
	}
	return es, nil
}

// sign says of drafts whose they are.
func (r *run) sign(drafts []contract.Draft) {
	for i := range drafts {
		drafts[i].Run = r.story.ID
		if drafts[i].Correlation == "" {
			drafts[i].Correlation = r.story.Correlation
		}
		if by := &drafts[i].Actor; by.Kind != contract.KindPerson && by.On == "" {
			by.On = r.story.User
		}
	}
}

// alone is how long what is owed by a loop may take to be stored by itself.
const alone = 10 * time.Second

// Scribe implements task.Run. What is owed is stored while the run leaves this process, too, and then the story need not have it.
func (r *run) Scribe() *scribe.Scribe {
	s := scribe.New(func(drafts ...contract.Draft) error {
		_, err := r.Append(r.awake, drafts...)
		return err
	})
	s.Alone = func(drafts ...contract.Draft) error {
		r.sign(drafts)
		ctx, cancel := awake.WithTimeout(context.WithoutCancel(r.awake), alone)
		defer cancel()
		_, err := r.dispatcher.options.Log.Append(ctx, drafts...)
		return err
	}
	return s
}

// touch wakes those who wait for the story to grow. The caller holds mu.
func (r *run) touch() {
	waits := r.story.Paused || len(r.waits) > 0 || r.queues
	switch {
	case waits && !r.idles:
		r.idleSince, r.idles = awake.Now(), true
	case !waits && r.idles:
		r.idle += awake.Now() - r.idleSince
		r.idles = false
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// waited returns how long the run was paused or waited for its user.
func (r *run) Waited() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idles {
		return r.idle
	}
	return r.idle + awake.Now() - r.idleSince
}

// used returns how much of its time the run has used. The time in which it waited for its user, nobody
// drove it, or the machine was suspended does not count.
func (r *run) used() time.Duration { return r.worked + awake.Now() - r.since - r.Waited() }

// over returns the error of a run whose time is used up; nil while it has some.
func (r *run) over() error {
	if wall := r.Budget().WallS; r.used() > time.Duration(wall)*time.Second {
		return fault.New("", fault.Exhausted, "", fmt.Errorf("the run's budget of %d seconds is used up", wall))
	}
	return nil
}

// inTime is Until, for as long as the run has time: then the error is fault.Exhausted.
func (r *run) inTime(ctx context.Context, cond func(*story.Run) bool) error {
	for {
		left := time.Duration(r.Budget().WallS)*time.Second - r.used()
		timed, cancel := awake.WithTimeout(ctx, max(left, overLook)) // its clock may stand meanwhile
		err := r.Until(timed, cond)
		ended := timed.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !ended {
			return err
		}
		if over := r.over(); over != nil {
			return over
		}
	}
}

// until waits for cond, which is called with mu held.
func (r *run) Until(ctx context.Context, cond func(*story.Run) bool) error {
	for {
		r.mu.Lock()
		ok, ch, unread := cond(r.story), r.changed, r.unread
		r.mu.Unlock()
		switch {
		case ok:
			return nil
		case unread != nil:
			return unread
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unpaused waits while the run is paused. Meanwhile the run's slot is free for others.
func (r *run) unpaused(ctx context.Context) error {
	return r.rest(ctx, func(s *story.Run) bool { return !s.Paused })
}

// rest is until, but gives the run's slot to others while it waits.
func (r *run) rest(ctx context.Context, cond func(*story.Run) bool) error {
	r.mu.Lock()
	ok := cond(r.story)
	r.mu.Unlock()
	if ok {
		return nil
	}
	return r.place.Rest(r.ctx, func() error { return r.Until(ctx, cond) })
}

// restTask waits for a person on behalf of a task. Meanwhile the task's slot is free for others, and so
// is the run's slot when nothing else of the run goes on. Afterwards the run's slot is taken before the
// task's: whoever holds a task's slot then also holds a run's, so no two wait for each other.
func (r *run) Rest(id string, wait func() error) error {
	r.mu.Lock()
	place := r.places[id]
	r.mu.Unlock()
	if place == nil { // the task is being ended without having had a slot
		return r.place.Rest(r.ctx, wait)
	}
	return place.Rest(r.ctx, func() error { return r.place.RestWorker(r.ctx, wait) })
}

// queued counts the time until over is called for nobody, if the run was taken up: it waits for a slot, as whoever waited for a
// person does.
func (r *run) queued() (over func()) {
	set := func(queues bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queues = queues && r.story.Started
		r.touch()
	}
	set(true)
	return func() { set(false) }
}

func (r *run) said(ctx context.Context, w Word, eventType string, p contract.Payload) (uint64, error) {
	es, err := r.Append(ctx, contract.Draft{ID: w.ID, Actor: w.By, Type: eventType, Subject: r.story.ID, Data: p})
	if err != nil {
		return 0, err
	}
	return es[0].Sequence, nil
}

func (r *run) answer(ctx context.Context, w Word, a contract.QuestionAnswered) (uint64, error) {
	r.mu.Lock()
	known := false
	for _, q := range r.story.Questions {
		known = known || q.ID == a.Question
	}
	r.mu.Unlock()
	if !known {
		return 0, fault.New("", fault.NotFound, "", fmt.Errorf("this run has no question %q", summary.OneLine(a.Question, 60)))
	}
	// There is one answer per question, from whoever answers first: the user, or the deadline.
	es, err := r.Append(ctx, contract.Draft{ID: w.ID, Actor: w.By, Type: "question.answered", Data: &a,
		Subject: "answer/" + a.Question, Expect: &contract.Expect{Last: 0}})
	if err != nil {
		return 0, err
	}
	return es[0].Sequence, nil
}

// drive takes the run from where its story stands to its report.
func (r *run) drive() error {
	if r.story.Report != nil {
		return nil
	}
	box := r.directorBox()
	if r.ctx.Err() == nil {
		r.mu.Lock()
		fresh := !r.story.Started && !r.story.Paused // otherwise the box might have to wait for long
		r.mu.Unlock()
		if err := r.open(func() {
			if fresh {
				box.Begin()
			}
		}); err != nil && r.ctx.Err() == nil {
			box.close()
			return err
		}
	}
	rep, over, err := r.alone(r.ctx)
	if err != nil && r.ctx.Err() == nil {
		box.close()
		return err
	}
	for opening := 1; !over && r.ctx.Err() == nil; opening++ {
		rep, err = r.plan(box)
		if err == nil || r.ctx.Err() != nil {
			break
		}
		if opening >= loops.MaxOpenings || fault.Is(err, fault.Missing) {
			return fmt.Errorf("the Director's box failed %d times: %w", opening, err)
		}
		r.dispatcher.log.Warn("a Director's box failed; opening another", "run", r.story.ID, "error", err)
		box = r.directorBox()
	}
	box.close()
	if errors.Is(context.Cause(r.ctx), task.ErrClosing) {
		r.endTasks(task.ErrClosing)
		return nil
	}
	why := fmt.Errorf("%w: its Director had reported", errEnded)
	switch gone := r.gone(); {
	case gone != nil:
		rep = director.Report{Status: contract.RunFailed, Detail: gone.Error(), Usage: rep.Usage,
			Summary: "The run was ended because " + gone.Error() + ". What its tasks had shown live was taken back as far as that was known; the checkpoints have what was before. Send the prompt again to have it done."}
	case r.ctx.Err() != nil: // the user cancelled it: nothing else ends it from outside
		rep = director.Report{Status: contract.RunCancelled, Summary: "The run was " + task.ErrCancelled.Error() + ".", Usage: rep.Usage}
	case rep.Status == contract.RunFailed:
		why = fmt.Errorf("%w: %s", errEnded, summary.OneLine(rep.Summary, 500))
	}
	// A Director may report while its tasks go on; the run ends them first.
	r.endTasks(why)
	return r.conclude(rep)
}

// gone returns the error that ends the run because events which it depends on can't be read any more; nil
// if there is none.
func (r *run) gone() *lostError {
	var gone *lostError
	errors.As(context.Cause(r.ctx), &gone)
	return gone
}

// endTasks ends the tasks of a run that ends for another reason, and waits for them. Their results
// contain the reason.
func (r *run) endTasks(why error) {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.cancel(why) // the first cause counts
	r.tasks.Wait()
}

var errEnded = errors.New("the run has ended")

// open starts the run in the log and makes its document. It calls plans before, if a Director plans the run.
func (r *run) open(plans func()) error {
	r.mu.Lock()
	taken, waits := r.story.Started, waitsForPerson(r.story)
	r.mu.Unlock()
	if !taken {
		direct, err := r.direct(r.ctx)
		role := contract.KindAssociate
		if direct == "" {
			role = contract.KindDirector
			plans()
		}
		if err != nil {
			return err
		}
		provider, model, err := r.dispatcher.options.Models.Resolve(r.ctx, role, r.story.Prompt.Model)
		if err != nil {
			return err
		}
		kept, err := r.kept(r.ctx)
		if err != nil {
			return err
		}
		drafts := []contract.Draft{{ID: contract.DeriveID(r.story.ID, "started"), Actor: contract.System(), Type: "run.started",
			Subject: r.story.ID, Causation: r.story.Cause, Data: &contract.RunStarted{Document: r.story.DocumentID(), Provider: provider, Model: model, Direct: direct, Facts: kept, Review: r.story.Prompt.Review || r.dispatcher.options.Review}}}
		if to, reason, news := r.doing(direct != ""); news {
			drafts = append(drafts, r.moved(to, reason)) // in one call, which is one sync of the log
		}
		if _, err = r.Append(r.ctx, drafts...); err != nil {
			return err
		}
	}
	if err := r.doc.Create(r.ctx); err != nil {
		return fmt.Errorf("the run's document: %w", err)
	}
	if taken && waits {
		return nil // and will; a log that takes nothing just now does not end it
	}
	return r.Settle(r.ctx)
}

// plan gives the run to a Director's box once the box is open, and waits for its report. The box has
// ended when it returns.
func (r *run) plan(b *directorBox) (director.Report, error) {
	defer b.close()
	ctx := b.Ctx
	// Tasks that an earlier Director requested end first, so that the new one finds their results in its
	// context.
	err := r.inTime(ctx, func(s *story.Run) bool {
		for _, t := range s.Tasks {
			if !r.settled[t.Request.ID] {
				return false
			}
		}
		return true
	})
	if err == nil {
		err = r.unpaused(ctx)
	}
	if err == nil {
		err = b.api.askOn(ctx)
	}
	if fault.Is(err, fault.Exhausted) {
		return stopped(err), nil
	}
	if err != nil {
		return director.Report{}, err
	}
	box, err := b.Wait()
	if err != nil {
		return director.Report{}, err
	}
	turns, closed := r.reopen()
	chosen, _ := r.Chosen()
	r.mu.Lock()
	m := director.Message{Run: r.story.ID, Prompt: r.story.Prompt.Text, Kept: summary.Pinned(r.story.Facts), Model: r.story.Prompt.Model, Budget: r.Budget(), Tools: r.dispatcher.tools.For(tool.Director),
		MaxTurns: r.dispatcher.options.Turns, Turns: turns, Window: r.dispatcher.options.Models.Window(ctx, contract.KindDirector, chosen), Heartbeat: int(r.dispatcher.options.Times.Heartbeat / time.Millisecond)}
	for _, t := range m.Turns {
		m.Spent = m.Spent.Add(t.Usage)
	}
	m.Turns = summary.Sent(m.Turns)
	r.mu.Unlock()
	for _, t := range closed {
		if _, err := b.api.turn(ctx, nil, t); err != nil {
			return director.Report{}, err
		}
	}
	if m.Brief, err = r.brief(ctx, b.api, len(m.Turns) > 0); err != nil {
		return director.Report{}, err
	}
	rep, err := loops.Converse[director.Report](ctx, box, r.dispatcher.options.Times.Silence, "/run", m, r.over)
	if fault.Is(err, fault.Exhausted) && r.ctx.Err() == nil {
		return stopped(err), nil
	}
	if err == nil && rep.Status == contract.RunCancelled && r.ctx.Err() == nil {
		return director.Report{Usage: rep.Usage}, fault.New("", fault.Unavailable, "", loops.ErrOutside)
	}
	return rep, r.silent(err)
}

// stopped is the report of a run whose budget is used up.
func stopped(err error) director.Report {
	return director.Report{Status: contract.RunFailed, Summary: "The run was stopped: " + fault.Text(err) + ".", Detail: fault.Text(err)}
}

// kill ends a box. No box may be left running, so a failure is logged as an error.
func (r *run) kill(b ports.Box) {
	loops.Kill(r.dispatcher.log, r.story.ID, b)
}

// fail reports a run that could not go on.
func (r *run) fail(err error) {
	if errors.Is(context.Cause(r.ctx), task.ErrClosing) {
		r.endTasks(task.ErrClosing)
		return
	}
	said := "The run could not go on: " + summary.OneLine(fault.Text(err), 2000)
	r.endTasks(fmt.Errorf("%w: it could not go on: %s", errEnded, summary.OneLine(fault.Text(err), 500)))
	if h := fault.HintOf(err); h != "" {
		said += ". " + h
	}
	if ferr := r.conclude(director.Report{Status: contract.RunFailed, Summary: said, Detail: fault.Text(err)}); ferr != nil {
		r.dispatcher.log.Error("a run's end could not be recorded; it is recovered at the next start", "run", r.story.ID, "error", ferr, "because", err)
	}
}

// conclude ends the tasks that have no result, and then the run, each once the log takes it.
func (r *run) conclude(rep director.Report) error {
	r.mu.Lock()
	var left []string
	for _, t := range r.story.Tasks {
		if !t.Ended() && r.story.Report == nil {
			left = append(left, t.Request.ID)
		}
	}
	r.mu.Unlock()
	for _, id := range left {
		task.Abandon(r.dispatcher.host, r, id, errEnded)
	}
	if r.closing() {
		return nil // the run is not reported before its tasks have their results, and is taken up again
	}
	err := r.dispatcher.host.Insist(r, "a run's end", r.story.ID, func() error { return r.finish(rep) })
	if errors.Is(err, task.ErrClosing) {
		return nil
	}
	return err
}

// finish appends the run's only run.reported, with the host's own verdict.
func (r *run) finish(rep director.Report) error {
	ctx, cancel := awake.WithTimeout(context.WithoutCancel(r.ctx), r.dispatcher.options.Times.CleanUp)
	defer cancel()
	r.mu.Lock()
	if r.story.Report != nil { // it was stored, and the log's answer lost
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	r.deafen()
	if err := r.closeApprovals(ctx); err != nil {
		return err
	}
	if err := outside.End(ctx, r, "", "the run ended while it was under way"); err != nil {
		return err
	}
	r.mu.Lock()
	p := summary.Reported(r.story, rep, r.spent(rep))
	r.mu.Unlock()
	r.doc.Finish(ctx, p)
	_, err := r.Append(ctx, contract.Draft{ID: contract.DeriveID(r.story.ID, "reported"), Actor: contract.System(), Type: "run.reported", Subject: r.story.ID, Data: p})
	if err != nil {
		return err
	}
	crash.At("dispatch.run.reported")
	if r.dispatcher.options.Publish == nil {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := r.dispatcher.options.Publish(ctx, contract.SubjectResult(r.dispatcher.options.CID, r.story.ID), data); err != nil {
		r.dispatcher.log.Warn("a run's result could not be sent; it is in the log", "run", r.story.ID, "error", err)
	}
	return nil
}

// spent returns what the run used. Tokens and cost are those of every model call as metered in the log,
// or as the loops counted them if none was metered; calls are those of the Director and of every attempt;
// the time counts from the prompt on. The caller holds mu.
func (r *run) spent(rep director.Report) contract.Usage {
	u := credible(rep.Usage)
	for _, t := range r.story.Tasks {
		for _, res := range t.Results {
			u = u.Add(res.Usage)
		}
	}
	if m := r.story.Metered; m.TokensIn+m.TokensOut > 0 || m.CostUSD > 0 {
		u.TokensIn, u.TokensOut, u.CostUSD = m.TokensIn, m.TokensOut, m.CostUSD
	}
	u.WallMS = max(0, r.dispatcher.options.Now().Sub(r.story.Began).Milliseconds())
	return bounded(u)
}
