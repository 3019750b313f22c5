package dispatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
)

// work starts the goroutine that takes a task from where its attempts stand to its last result.
func (r *run) work(id string) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return // finish records its result
	}
	r.tasks.Add(1)
	r.mu.Unlock()
	r.place.Join()
	go func() {
		defer r.tasks.Done()
		defer r.place.Leave()
		defer func() {
			if p := recover(); p != nil {
				r.abandon(id, fmt.Errorf("the dispatcher panicked: %v", p))
			}
			r.mu.Lock()
			r.settled[id] = true
			r.touch()
			r.mu.Unlock()
		}()
		place := &slots.Slot{Slots: r.dispatcher.tasks}
		r.mu.Lock()
		r.places[id] = place
		r.mu.Unlock()
		if r.place.Take(r.ctx) && place.Take(r.ctx) {
			defer place.Give()
		}
		if err := r.attempts(id); err != nil {
			r.abandon(id, err)
		}
	}()
}

// attempts makes attempts at a task, or continues the one under way, until one has a result that counts.
func (r *run) attempts(id string) error {
	for {
		n, more := r.nextAttempt(id)
		if !more {
			return nil
		}
		if err := r.attempt(id, n); err != nil {
			return err
		}
		if r.ctx.Err() != nil {
			return nil
		}
	}
}

// nextAttempt returns the number of the attempt to drive, if there is one: the one under way, the first,
// or the one after an attempt that ended with Again set.
func (r *run) nextAttempt(id string) (n int, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.story.Task(id).Now
	switch {
	case now.Number == 0:
		return 1, true
	case !now.Ended():
		return now.Number, true
	}
	return now.Number + 1, now.Again && now.Number < maxAttempts
}

// lost reports whether an error means that a box was lost rather than that the task failed.
func lost(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
}

// abandon records a result for a task that can't go on, unless the computer goes to sleep: then Recover
// continues the task.
func (r *run) abandon(id string, why error) {
	if r.closing() {
		return
	}
	r.mu.Lock()
	t := r.story.Task(id)
	n, ended := max(t.Now.Number, 1), t.Ended()
	r.mu.Unlock()
	if ended {
		return
	}
	a := r.at(id, n)
	a.now = r.standing(a.ref)
	err := error(nil)
	if a.now.State != contract.AttemptTakingBack {
		err = a.fail(why)
	}
	if err == nil {
		ctx, cancel := a.cleanUp()
		defer cancel()
		err = a.drive(ctx)
	}
	if err != nil && !r.closing() {
		r.dispatcher.log.Error("a task's result could not be recorded; it is recovered at the next start", "task", id, "error", err, "because", why)
	}
}

// attempt is one attempt under way.
type attempt struct {
	run     *run
	task    contract.DirectorTask
	ref     ports.TaskRef
	overlay ports.Overlay
	box     ports.Box       // the task's box; nil for kind git
	began   time.Duration   // when its boxes were opened
	now     machine.Attempt // its state when the step under way began
	merged  *ports.Merged   // the merge, if this process computed it
	lost    error           // why its boxes were lost the last time
	early   int             // how many starts were lost before task.started
	pause   time.Duration   // how long to wait before what failed is tried again
	failed  int             // how often it has failed in a row
	told    bool            // whether the user was told
	tries   int             // how often publishing was tried
	until   time.Duration   // when a publish that gives no answer is left as it is

	fence    string // the token that its loop's requests must carry
	requests *loops.Gate

	mu       sync.Mutex
	used     map[string]bool
	calls    int
	allowed  []string
	denied   []string
	head     string        // the newest checkpoint that a git step made
	waited   time.Duration // how long the run had waited for its user before the attempt's boxes were opened
	lostCall bool          // whether a call got no answer from the task's box

	forward sync.Mutex // one tool call at a time
}

func newFence() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// at returns an attempt as recorded in the story.
func (r *run) at(id string, n int) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &attempt{run: r, task: r.story.Task(id).Request, ref: ports.TaskRef{Run: r.story.ID, Task: id, Attempt: n}, requests: loops.NewGate(r.ctx)}
	a.task.Attempt = n
	a.reset()
	return a
}

// begun prepares an attempt whose boxes were lost for new ones.
func (a *attempt) begun() {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	a.reset()
}

// reset sets what the attempt has used so far from the story. The caller holds the run's mu.
func (a *attempt) reset() {
	a.requests.End()
	a.requests, a.box, a.lostCall, a.began = loops.NewGate(a.run.ctx), nil, false, awake.Now()
	a.used, a.calls = map[string]bool{}, 0
	if t := a.run.story.Task(a.ref.Task); t.Now.Number == a.ref.Attempt {
		for _, c := range t.Calls {
			a.used[c.Call] = true
		}
		a.calls = len(t.Calls)
		a.mu.Lock()
		a.allowed, a.denied = slices.Clone(t.Reached), slices.Clone(t.Refused)
		a.mu.Unlock()
	}
}

// attempt drives one attempt to its end. An error means that the attempt has no result yet.
func (r *run) attempt(id string, n int) error {
	a := r.at(id, n)
	defer func() { a.stop(nil); a.requests.End() }()
	return a.drive(r.ctx)
}

// converse opens the attempt's boxes, records that in the log, and lets the loop work. The loop's box may
// be open already.
func (a *attempt) converse(ctx context.Context, resume bool, opens *opening) (associate.Draft, error) {
	defer opens.close()
	r, o := a.run, a.run.dispatcher.options
	a.waited = r.waited() // the task's clock stands still while a person is asked
	note := ""
	if a.task.Kind != contract.KindGit {
		id := boxID("t")
		var approved []string
		var err error
		if approved, note, err = a.network(ctx); err != nil {
			return associate.Draft{}, err
		}
		out, err := o.Egress(ports.EgressScope{Run: a.ref.Run, Task: a.ref.Task, Box: id, Kind: contract.BoxTask, Approved: approved}, a.task.Egress, a.decided)
		if err != nil {
			return associate.Draft{}, fault.Wrap("dispatch.egress", err)
		}
		a.box, err = o.Boxes.Open(ctx, ports.BoxRequest{ID: id, Kind: contract.BoxTask, Run: a.ref.Run, Task: a.ref.Task, Overlay: a.overlay,
			Handler: out, Network: a.task.Egress.Profile != contract.EgressNone})
		if err != nil {
			return associate.Draft{}, err
		}
	}
	loop, err := opens.wait()
	if err != nil {
		return associate.Draft{}, err
	}
	sum := sha256.Sum256([]byte(a.fence))
	box := loop.ID()
	if a.box != nil {
		box = a.box.ID()
	}
	started, err := a.transition("task.started", contract.System(),
		&contract.TaskStarted{Attempt: a.ref.Attempt, Box: box, Base: a.now.Base, Fence: hex.EncodeToString(sum[:])})
	if err != nil {
		return associate.Draft{}, err
	}
	if err := a.record(started); err != nil {
		return associate.Draft{}, err
	}
	crash.At("dispatch.task.started")
	if err := r.settle(ctx); err != nil {
		return associate.Draft{}, err
	}
	var turns []contract.TurnRecorded
	if resume {
		if turns, err = a.recorded(ctx); err != nil {
			return associate.Draft{}, err
		}
	}
	m := associate.Message{Task: a.task, Fence: a.fence, Model: r.story.Prompt.Model, Tools: r.dispatcher.tools.Offered(a.task), MaxTurns: r.dispatcher.options.Turns, Turns: turns, Heartbeat: int(o.Times.Heartbeat / time.Millisecond)}
	if m.Inputs, err = a.inputs(ctx); err != nil {
		return associate.Draft{}, err
	}
	if note != "" {
		m.Inputs = append(m.Inputs, associate.Input{Name: "network", Text: note})
	}
	for _, t := range turns {
		m.Spent = m.Spent.Add(t.Usage)
	}
	wall := time.Duration(a.task.Budget.WallS)*time.Second + o.Times.Grace
	d, err := loops.Converse[associate.Draft](ctx, loop, o.Times.Silence, "/task", m, func() error {
		if a.spent() > wall {
			return fault.New("", fault.Exhausted, "", fmt.Errorf("its budget of %d seconds is used up", a.task.Budget.WallS))
		}
		return a.boxEnded(0)
	})
	if err == nil && a.failedCall() {
		// The loop's answer is based on a call whose box ended during it, so it is not a result.
		err = a.boxEnded(endsAfter)
	}
	if err == nil && d.Status == contract.ResultCancelled && ctx.Err() == nil {
		err = fault.New("", fault.Unavailable, "", errOutside)
	}
	a.stop(loop)
	return d, r.silent(err)
}

// spent returns how much of its time the attempt has used.
func (a *attempt) spent() time.Duration { return awake.Now() - a.began - (a.run.waited() - a.waited) }

// endsAfter is how long after a failed call to wait for the news that the box has ended.
const endsAfter = time.Second

// boxEnded returns why the task's box ended, if it has ended or does so within a time; nil otherwise. The
// error is fault.Unavailable, so that the task goes on in another box. For tasks of fixed steps it is
// fault.Exhausted if they used up the box's resources, for they would do so again.
func (a *attempt) boxEnded(within time.Duration) error {
	if a.box == nil || !endsWithin(a.box, within) {
		return nil
	}
	err, code := firstError(a.box.Err(), loops.ErrGone), fault.Unavailable
	if a.task.Kind != contract.KindAgent && fault.Is(err, fault.Exhausted) {
		code = fault.Exhausted
	}
	return fault.New("", code, "", fmt.Errorf("its box ended: %w", err))
}

// endsWithin reports whether a box has ended, or ends within a time.
func endsWithin(b ports.Box, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-b.Done():
	case <-timer.C:
		select {
		case <-b.Done(): // it ended, too; select chose the timer
		default:
			return false
		}
	}
	return true
}

// failedCall reports whether a call was lost on its way to the task's box.
func (a *attempt) failedCall() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lostCall
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// stop ends the attempt's boxes. When it returns, nothing more is accepted under the attempt's token,
// nothing of the task runs, and no call is under way.
func (a *attempt) stop(loop ports.Box) {
	a.requests.Close(func() {
		var kills sync.WaitGroup
		for _, b := range []ports.Box{a.box, loop} {
			if b != nil {
				kills.Go(func() { a.run.kill(b) })
			}
		}
		kills.Wait()
	})
}

func (a *attempt) decided(hostport string, allowed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := &a.denied
	if allowed {
		list = &a.allowed
	}
	*list = story.AddHost(*list, hostport)
}

// inputs reads the inputs that the task names.
func (a *attempt) inputs(ctx context.Context) ([]associate.Input, error) {
	var out []associate.Input
	for _, in := range a.task.Inputs {
		switch {
		case in.Document != "":
			doc, err := a.run.dispatcher.options.Documents.Get(ctx, in.Document)
			if err != nil {
				return nil, fmt.Errorf("input document %s: %w", in.Document, err)
			}
			out = append(out, associate.Input{Name: "document " + doc.Title, Text: harness.Clip(doc.Body, 16<<10)})
		case in.File != "":
			b, err := a.run.dispatcher.options.Workspace.ReadFile(ctx, in.File, 16<<10)
			if err != nil {
				return nil, fmt.Errorf("input file %s: %w", in.File, err)
			}
			out = append(out, associate.Input{Name: in.File, Text: harness.Clip(string(b), 16<<10)})
		case in.Blob != "":
			return nil, fault.New("", fault.Invalid, "Put what is in the blob into a file first.", errors.New("blobs can't be given to a task yet"))
		}
	}
	return out, nil
}
