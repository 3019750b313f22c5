package dispatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
)

// work starts the goroutine that takes a task to its last result. resume goes
// on with the newest attempt instead of starting one.
func (r *run) work(id string, before func() (resume bool, err error)) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return // finish gives it its result
	}
	r.tasks.Add(1)
	r.mu.Unlock()
	go func() {
		defer r.tasks.Done()
		defer func() {
			if p := recover(); p != nil {
				r.abandon(id, fmt.Errorf("the dispatcher panicked: %v", p))
			}
			r.mu.Lock()
			r.s.byID[id].settled = true
			r.touch()
			r.mu.Unlock()
		}()
		select {
		case r.d.tasks <- struct{}{}:
			defer func() { <-r.d.tasks }()
		case <-r.ctx.Done():
		}
		resume := false
		var err error
		if before != nil {
			resume, err = before()
		}
		if err == nil {
			err = r.attempts(id, resume)
		}
		if err != nil {
			r.abandon(id, err)
		}
	}()
}

// attempts makes attempts at a task until one has a result that counts.
func (r *run) attempts(id string, resume bool) error {
	early := 0 // starts that were lost before task.started
	for {
		r.mu.Lock()
		t := r.s.byID[id]
		n, starts, kind := t.attempt, t.starts, t.task.Kind
		if !resume {
			if t.last != nil {
				n = max(n, t.last.Attempt)
			}
			n, starts = n+1, 0
		}
		r.mu.Unlock()
		err := r.attempt(id, n, resume)
		switch {
		case err == nil:
			return nil
		case r.ctx.Err() != nil:
			return context.Cause(r.ctx)
		case kind == contract.KindAgent && starts+early+1 < maxStarts && lost(err):
			r.mu.Lock()
			resume = t.attempt == n
			r.mu.Unlock()
			if !resume {
				early++ // the same attempt is begun anew; its overlay, if there is one, is still untouched
			}
			r.d.log.Warn("an attempt lost its box; it goes on", "task", id, "attempt", n, "resumed", resume, "error", err)
			continue
		}
		if ferr := r.finished(id, n, r.broken(id, n, contract.ResultFailed, err)); ferr != nil {
			return ferr
		}
		if n >= maxAttempts || !lost(err) {
			return nil
		}
		resume = false
	}
}

// lost reports whether an attempt ended because its box did.
func lost(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
}

// abandon gives a task that can't go on its one result, unless the computer
// goes to sleep: then Recover goes on with it.
func (r *run) abandon(id string, err error) {
	if errors.Is(context.Cause(r.ctx), errClosing) {
		return
	}
	r.mu.Lock()
	t := r.s.byID[id]
	n, ended := max(t.attempt, 1), t.ended()
	r.mu.Unlock()
	if ended {
		return
	}
	status := contract.ResultFailed
	if errors.Is(err, errCancelled) || r.ctx.Err() != nil {
		status = contract.ResultCancelled
	}
	if ferr := r.finished(id, n, r.broken(id, n, status, err)); ferr != nil {
		r.d.log.Error("a task's result could not be recorded; it is recovered at the next start", "task", id, "error", ferr, "because", err)
	}
}

// broken is the result of an attempt that ended for a reason of the machinery.
func (r *run) broken(id string, n int, status contract.ResultStatus, err error) contract.AssociateResult {
	r.mu.Lock()
	t := r.s.byID[id].task
	r.mu.Unlock()
	summary := oneLine(fault.Text(err), 4000)
	if status == contract.ResultCancelled {
		summary = "The task was cancelled."
	}
	return contract.AssociateResult{Version: contract.Version, Task: id, Attempt: n, Status: status, Summary: firstText(summary, "failed"),
		Verification: contract.Verification{Profile: t.Verify.Profile, Status: contract.VerificationUnknown, Reason: "the task did not end by itself"}}
}

// finished appends the one result of an attempt.
func (r *run) finished(id string, n int, res contract.AssociateResult) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.d.o.Times.CleanUp)
	defer cancel()
	_, err := r.append(ctx, contract.Draft{ID: contract.DeriveID(id, fmt.Sprintf("finished:%d", n)), Role: contract.RoleAssociate, Type: "task.finished",
		Subject: fmt.Sprintf("task/%s/%d", id, n), Task: id, Data: &contract.TaskFinished{Result: res}, Expect: &contract.Expect{Last: 0}})
	return fault.Wrap("dispatch.finished", err)
}

// attempt is one attempt under way.
type attempt struct {
	r       *run
	task    contract.DirectorTask
	ref     TaskRef
	base    string
	overlay Overlay
	box     Box // the task's; nil for kind git
	began   time.Time

	fence    string // the token of what its loop asks
	requests *gate

	mu       sync.Mutex
	used     map[string]bool
	calls    int
	commands []contract.Command
	allowed  []string
	denied   []string
	head     string // newest checkpoint a git step made
	live     bool   // something is published live and not yet checkpointed
	keep     bool   // leave the tree of the overlay behind a ref
	lostCall bool   // a call got no answer from the task's box

	forward sync.Mutex // one tool call at a time
}

func newFence() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// attempt makes, or goes on with, one attempt and appends its result. An error
// means there is no result yet.
func (r *run) attempt(id string, n int, resume bool) (err error) {
	r.mu.Lock()
	t := r.s.byID[id]
	a := &attempt{r: r, task: t.task, ref: TaskRef{Run: r.s.id, Task: id, Attempt: n}, base: t.base, began: r.d.o.Now(), used: map[string]bool{},
		requests: newGate(r.ctx)}
	a.task.Attempt = n
	if resume {
		a.live = t.live
		for _, c := range t.calls {
			a.used[c.Call] = true
		}
		a.calls = len(t.calls)
	}
	r.mu.Unlock()
	defer a.requests.end()

	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	if a.task.Kind != contract.KindGit {
		if err := a.begin(ctx, resume); err != nil {
			return err
		}
	}
	if a.live {
		r.d.liveOpen.Add(1)
	}
	defer a.notLive()
	defer func() {
		// Whatever ends an attempt without a result: nothing of it may go on, and
		// unless it is to be resumed nothing of it may stay.
		a.stop(nil)
		if err == nil || errors.Is(context.Cause(r.ctx), errClosing) || (a.task.Kind == contract.KindAgent && lost(err) && r.ctx.Err() == nil) {
			return
		}
		err = errors.Join(err, a.undo())
	}()
	draft, err := a.converse(ctx, resume)
	if err != nil && !fault.Is(err, fault.Exhausted) {
		return err
	}
	if err != nil {
		draft = associate.Draft{Status: contract.ResultFailed, Summary: "The task was stopped: " + err.Error() + "."}
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	res, err := a.conclude(ctx, draft)
	if err != nil {
		return err
	}
	// The result is in the log before the tree it came from is gone: a death in
	// between leaves an overlay behind, not a task whose work nobody can account for.
	if err := r.finished(id, n, res); err != nil {
		return err
	}
	crash.At("dispatch.task.finished")
	a.discard()
	return nil
}

// begin makes the overlay, or takes up the one an interrupted attempt left.
func (a *attempt) begin(ctx context.Context, resume bool) error {
	ws := a.r.d.o.Workspace
	if resume {
		o, err := ws.Reopen(ctx, a.ref, a.base)
		if err != nil {
			return fmt.Errorf("the interrupted attempt's tree: %w", err)
		}
		a.overlay = o
		return nil
	}
	commit, err := ws.Checkpoint(ctx, CheckpointRequest{Kind: contract.CheckpointBefore, Run: a.ref.Run, Task: a.ref.Task,
		Message: "Before: " + title(a.task.Goal)})
	if err != nil {
		return err
	}
	a.base = firstText(a.task.Base, commit)
	a.overlay, err = ws.Begin(ctx, a.ref, a.base)
	crash.At("dispatch.task.prepared")
	return err
}

// converse opens the boxes, says so in the log, and lets the loop work.
func (a *attempt) converse(ctx context.Context, resume bool) (associate.Draft, error) {
	r, o := a.r, a.r.d.o
	waited := r.waited() // while a person is asked, the task's clock stands
	note := ""
	if a.task.Kind != contract.KindGit {
		id := boxID("t")
		var approved []string
		var err error
		if approved, note, err = a.network(ctx); err != nil {
			return associate.Draft{}, err
		}
		out, err := o.Egress(EgressScope{Run: a.ref.Run, Task: a.ref.Task, Box: id, Kind: contract.BoxTask, Approved: approved}, a.task.Egress, a.decided)
		if err != nil {
			return associate.Draft{}, fault.Wrap("dispatch.egress", err)
		}
		a.box, err = o.Boxes.Open(ctx, BoxRequest{ID: id, Kind: contract.BoxTask, Run: a.ref.Run, Task: a.ref.Task, Overlay: a.overlay,
			Handler: out, Network: a.task.Egress.Profile != contract.EgressNone})
		if err != nil {
			return associate.Draft{}, err
		}
	}
	a.fence = newFence()
	loop, err := o.Boxes.Open(ctx, BoxRequest{ID: boxID("a"), Kind: contract.BoxAssociate, Run: a.ref.Run, Task: a.ref.Task, Handler: a.requests.guard(a.handler())})
	if err != nil {
		return associate.Draft{}, err
	}
	defer r.kill(loop)
	sum := sha256.Sum256([]byte(a.fence))
	box := loop.ID()
	if a.box != nil {
		box = a.box.ID()
	}
	_, err = r.append(ctx, contract.Draft{Role: contract.RoleSystem, Type: "task.started", Subject: a.ref.Task, Task: a.ref.Task,
		Data: &contract.TaskStarted{Attempt: a.ref.Attempt, Box: box, Base: a.base, Fence: hex.EncodeToString(sum[:])}})
	if err != nil {
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
	m := associate.Message{Task: a.task, Fence: a.fence, Model: r.s.prompt.Model, MaxTurns: r.d.o.Turns, Turns: turns, Beat: int(o.Times.Beat / time.Millisecond)}
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
	d, err := converse[associate.Draft](ctx, loop, o.Times, "/task", m, func() error {
		if o.Now().Sub(a.began)-(r.waited()-waited) > wall {
			return fault.New("", fault.Exhausted, "", fmt.Errorf("its budget of %d seconds is used up", a.task.Budget.WallS))
		}
		return a.boxEnded(0)
	})
	if err == nil && a.failedCall() {
		// What the loop made of a call whose box died under it is not a result.
		err = a.boxEnded(deathRattle)
	}
	a.stop(loop)
	return d, err
}

// deathRattle is how long after a call of its failed a box is given to be known
// as ended.
const deathRattle = time.Second

// boxEnded says why the task's box ended, if it has, or does within a time:
// fault.Unavailable, so that the task goes on in another one, but for fixed
// steps fault.Exhausted when they used up what the box had: they would again.
func (a *attempt) boxEnded(within time.Duration) error {
	if a.box == nil {
		return nil
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.box.Done():
	case <-timer.C:
		select {
		case <-a.box.Done(): // both were so
		default:
			return nil
		}
	}
	err, code := firstError(a.box.Err(), errGone), fault.Unavailable
	if a.task.Kind != contract.KindAgent && fault.Is(err, fault.Exhausted) {
		code = fault.Exhausted
	}
	return fault.New("", code, "", fmt.Errorf("its box ended: %w", err))
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

// stop ends the attempt's boxes. When it returns, nothing is accepted under its
// token any more, nothing of the task runs, and no call is under way.
func (a *attempt) stop(loop Box) {
	a.requests.shut(func() {
		if a.box != nil {
			a.r.kill(a.box)
		}
		if loop != nil {
			a.r.kill(loop)
		}
	})
}

func (a *attempt) decided(hostport string, allowed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := &a.denied
	if allowed {
		list = &a.allowed
	}
	if len(*list) < 100 && len(hostport) <= 300 {
		for _, h := range *list {
			if h == hostport {
				return
			}
		}
		*list = append(*list, hostport)
	}
}

// inputs reads what the task was given to read.
func (a *attempt) inputs(ctx context.Context) ([]associate.Input, error) {
	var out []associate.Input
	for _, in := range a.task.Inputs {
		switch {
		case in.Document != "":
			doc, err := a.r.d.o.Documents.Get(ctx, in.Document)
			if err != nil {
				return nil, fmt.Errorf("input document %s: %w", in.Document, err)
			}
			out = append(out, associate.Input{Name: "document " + doc.Title, Text: clipText(doc.Body, 16<<10)})
		case in.File != "":
			b, err := a.r.d.o.Workspace.ReadFile(ctx, in.File, 16<<10)
			if err != nil {
				return nil, fmt.Errorf("input file %s: %w", in.File, err)
			}
			out = append(out, associate.Input{Name: in.File, Text: clipText(string(b), 16<<10)})
		case in.Blob != "":
			return nil, fault.New("", fault.Invalid, "Put what is in the blob into a file first.", errors.New("blobs can't be given to a task yet"))
		}
	}
	return out, nil
}

// undo takes back what an attempt did: what was published live is inverted,
// the overlay dropped. It works on although the run was cancelled.
func (a *attempt) undo() error {
	if a.overlay == nil {
		return nil
	}
	if err := a.takeBack(); err != nil {
		return err
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	return fault.Wrap("dispatch.undo", a.r.d.o.Workspace.Drop(ctx, a.overlay, a.keep))
}

// takeBack inverts what was published live.
func (a *attempt) takeBack() error {
	if !a.live {
		return nil
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	a.r.d.publishing.Lock()
	defer a.r.d.publishing.Unlock()
	if err := a.r.d.o.Workspace.Invert(ctx, a.overlay); err != nil {
		return fmt.Errorf("take back what the task showed live: %w", err)
	}
	crash.At("dispatch.task.inverted")
	a.notLive()
	return nil
}

// discard drops the overlay of an attempt that has its result.
func (a *attempt) discard() {
	if a.overlay == nil {
		return
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	if err := a.r.d.o.Workspace.Drop(ctx, a.overlay, a.keep); err != nil {
		a.r.d.log.Warn("a task's overlay could not be removed; it takes up space", "task", a.ref.Task, "attempt", a.ref.Attempt, "error", err)
	}
}

// cleanUp is the context for undoing things after a run was cancelled.
func (a *attempt) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.r.ctx), a.r.d.o.Times.CleanUp)
}

// notLive says that nothing of the attempt is live and unpublished any more.
func (a *attempt) notLive() {
	if a.live {
		a.live = false
		a.r.d.liveOpen.Add(-1)
	}
}

// canonical is a call as it is compared with a task's steps.
func canonical(name string, args json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(args, &v); err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	return name + "\x00" + string(b), err
}
