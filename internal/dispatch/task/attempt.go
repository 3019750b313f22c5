package task

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/outside"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/scribe"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// Work makes attempts at a task, or continues the one under way, until one has a result that counts.
func Work(h *Host, r Run, id string) error {
	for {
		n, more := nextAttempt(r, id)
		if !more {
			return nil
		}
		if err := drive(h, r, id, n); err != nil {
			return err
		}
		if r.Context().Err() != nil {
			return nil
		}
	}
}

// nextAttempt returns the number of the attempt to drive, if there is one: the one under way, the first,
// or the one after an attempt that ended with Again set.
func nextAttempt(r Run, id string) (n int, more bool) {
	var now machine.Attempt
	r.Story(func(s *story.Run) { now = s.Task(id).Now })
	switch {
	case now.Number == 0:
		return 1, true
	case !now.Ended():
		return now.Number, true
	}
	return now.Number + 1, now.Again && now.Number < MaxAttempts
}

// Discard removes the overlay that a crash may have left between the result of a task's newest attempt and
// the removal of its overlay.
func Discard(h *Host, r Run, id string) {
	n := 1
	r.Story(func(s *story.Run) { n = max(s.Task(id).Now.Number, 1) })
	a := at(h, r, id, n)
	a.now = a.standing()
	a.discard()
}

// lost reports whether an error means that a box was lost rather than that the task failed.
func lost(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
}

// Abandon records a result for a task that can't go on, once the log takes it, unless the computer goes to
// sleep: then Recover continues the task.
func Abandon(h *Host, r Run, id string, why error) {
	err := h.Insist(r, "a task's result", id, func() error { return abandon(h, r, id, why) })
	if err != nil && !closing(r) {
		h.Logger.Error("a task's result could not be recorded; it is recovered at the next start", "task", id, "error", err, "because", why)
	}
}

// abandon is Abandon, tried once. What it has recorded before is not recorded again.
func abandon(h *Host, r Run, id string, why error) error {
	if closing(r) {
		return ErrClosing
	}
	n, ended := 0, false
	r.Story(func(s *story.Run) {
		t := s.Task(id)
		n, ended = max(t.Now.Number, 1), t.Ended()
	})
	if ended {
		return nil
	}
	a := at(h, r, id, n)
	defer a.overcome()
	a.now = a.standing()
	if !a.settled(why) {
		if err := a.fail(why); err != nil {
			return err
		}
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	return a.drive(ctx)
}

// attempt is one attempt under way.
type attempt struct {
	host    *Host
	run     Run
	task    contract.DirectorTask
	model   string // the prompt's choice
	effort  contract.Effort
	ref     ports.TaskRef
	overlay ports.Overlay
	box     ports.Box       // the task's box; nil for kind git
	began   time.Duration   // when its boxes were opened
	worked  time.Duration   // how long its loop had worked in the boxes before these, over restarts
	now     machine.Attempt // its state when the step under way began
	merged  *ports.Merged   // the merge, if this process computed it
	lost    error           // why its boxes were lost the last time
	early   int             // how many starts were lost before task.started
	pause   time.Duration   // how long to wait before what failed is tried again
	failed  int             // how often it has failed in a row
	told    func()          // ends that the user is told; nil while they are not
	tries   int             // how often publishing was tried
	until   time.Duration   // when a publish that gives no answer is left as it is

	fence    string // the token that its loop's requests must carry
	requests *loops.Gate
	said     *scribe.Scribe // what its loop says, since its boxes were opened

	mu       sync.Mutex
	used     map[string]bool
	calls    int
	allowed  []string
	denied   []string
	head     string        // the newest checkpoint that a git step made
	waited   time.Duration // how long the run had waited for its user before the attempt's boxes were opened
	lostCall bool          // whether a call got no answer from the task's box
	heard    []string      // what its loop was told last of the run; a new loop asks first

	forward sync.RWMutex // calls that change something one at a time, the others beside each other
}

func newFence() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// at returns an attempt as recorded in the story.
func at(h *Host, r Run, id string, n int) *attempt {
	a := &attempt{host: h, run: r, requests: loops.NewGate(r.Context())}
	r.Story(func(s *story.Run) {
		a.task, a.ref = s.Task(id).Request, ports.TaskRef{Run: s.ID, Task: id, Attempt: n}
		a.model, a.effort = s.Prompt.Model, s.Prompt.Effort
		a.task.Attempt = n
		if t := s.Task(id); t.Now.Number == n {
			a.worked = s.TaskWorked(t) // in processes before this one
		}
		a.reset(s)
	})
	return a
}

// begun prepares an attempt whose boxes were lost for new ones.
func (a *attempt) begun() {
	a.run.Story(a.reset)
}

// reset sets what the attempt has used so far from the story.
func (a *attempt) reset(s *story.Run) {
	a.requests.End()
	a.requests, a.box, a.lostCall, a.began = loops.NewGate(a.run.Context()), nil, false, awake.Now()
	a.used, a.calls = map[string]bool{}, 0
	if t := s.Task(a.ref.Task); t.Now.Number == a.ref.Attempt {
		for _, c := range t.Calls {
			a.used[c.Call] = true
		}
		a.calls = len(t.Calls) + t.Program.Calls
		a.mu.Lock()
		a.allowed, a.denied = slices.Clone(t.Reached), slices.Clone(t.Refused)
		a.mu.Unlock()
	}
}

// drive drives one attempt to its end. An error means that the attempt has no result yet.
func drive(h *Host, r Run, id string, n int) error {
	a := at(h, r, id, n)
	defer func() { a.stop(nil); a.requests.End(); a.overcome() }()
	return a.drive(r.Context())
}

// openLoop begins to open the box of the attempt's loop while the attempt's tree is made. If the attempt
// may have to wait for a person's approval, the box is opened later, so that none is held meanwhile.
func (a *attempt) openLoop(ctx context.Context) *loops.Opening {
	a.fence, a.said = newFence(), a.run.Scribe()
	o := &loops.Opening{Ctx: ctx, Boxes: a.host.Boxes, Kill: func(b ports.Box) { a.host.kill(a.ref.Run, b) }, Box: ports.BoxRequest{ID: loops.BoxID("a"), Kind: contract.BoxAssociate, Run: a.ref.Run, Task: a.ref.Task,
		Handler: a.requests.Guard(a.handler())}}
	if a.task.Egress.Profile != contract.EgressCustom && a.task.Program == "" {
		o.Begin()
	}
	return o
}

// pinned is what the computer kept when the run began.
func (a *attempt) pinned() (text string) {
	a.run.Story(func(s *story.Run) { text = summary.Pinned(s.Facts) })
	return text
}

// converse opens the attempt's boxes, records that in the log, and lets the loop work. The loop's box may
// be open already.
func (a *attempt) converse(ctx context.Context, resume bool, opens *loops.Opening) (associate.Draft, error) {
	defer opens.Close()
	o := a.host
	note, err := a.openBox(ctx)
	if err != nil {
		return associate.Draft{}, err
	}
	loop, err := opens.Wait()
	if err != nil {
		return associate.Draft{}, err
	}
	box := loop.ID()
	if a.box != nil {
		box = a.box.ID()
	}
	if err := a.started(ctx, box); err != nil {
		return associate.Draft{}, err
	}
	var turns []contract.TurnRecorded
	if resume {
		if turns, err = a.recorded(ctx); err != nil {
			return associate.Draft{}, err
		}
	}
	given := a.task
	given.Budget.WallS = max(1, given.Budget.WallS-int(a.worked/time.Second))
	m := associate.Message{Task: given, Fence: a.fence, Model: a.model, Kept: a.pinned(), Tools: a.host.Tools.Offered(a.task), MaxTurns: o.Turns, Heartbeat: int(o.Times.Heartbeat / time.Millisecond)}
	if m.Inputs, err = a.inputs(ctx, note); err != nil {
		return associate.Draft{}, err
	}
	if m.Brief, err = a.brief(ctx, len(turns) > 0); err != nil {
		return associate.Draft{}, err
	}
	for _, t := range turns {
		m.Spent = m.Spent.Add(t.Usage)
	}
	chosen, _ := a.run.Chosen()
	m.Turns, m.Window = summary.Sent(turns), o.Models.Window(ctx, contract.KindAssociate, chosen)
	wall := time.Duration(given.Budget.WallS)*time.Second + o.Times.Grace
	d, err := loops.Converse[associate.Draft](ctx, loop, o.Times.Silence, "/task", m, func() error {
		if a.spent() > wall {
			return a.outOfTime()
		}
		return a.boxEnded(0)
	})
	if err == nil && a.failedCall() {
		// The loop's answer is based on a call whose box ended during it, so it is not a result.
		err = a.boxEnded(endsAfter)
	}
	if err == nil && d.Status == contract.ResultCancelled && ctx.Err() == nil {
		err = fault.New("", fault.Unavailable, "", loops.ErrOutside)
	}
	a.stop(loop)
	return d, a.silent(err)
}

// openBox opens the box that the task's tree is in, if it has one. note is what the model is to know of
// the network.
func (a *attempt) openBox(ctx context.Context) (note string, err error) {
	a.waited = a.run.Waited() // the task's clock stands still while a person is asked
	if a.task.Kind == contract.KindGit {
		return "", nil
	}
	id := loops.BoxID("t")
	approved, note, err := a.network(ctx)
	if err != nil {
		return "", err
	}
	out, err := a.host.Egress(ports.EgressScope{Run: a.ref.Run, Task: a.ref.Task, Box: id, Kind: contract.BoxTask, Approved: approved}, a.task.Egress, a.decided)
	if err != nil {
		return "", fault.Wrap("dispatch.egress", err)
	}
	token := a.newModelToken()
	a.box, err = a.host.Boxes.Open(ctx, ports.BoxRequest{ID: id, Kind: contract.BoxTask, Run: a.ref.Run, Task: a.ref.Task, Overlay: a.overlay,
		Handler: a.programs(token, out), Network: a.task.Egress.Profile != contract.EgressNone, ModelToken: token})
	return note, err
}

// started records that a box works on the attempt.
func (a *attempt) started(ctx context.Context, box string) error {
	sum := sha256.Sum256([]byte(a.fence))
	started, err := a.transition("task.started", contract.System(),
		&contract.TaskStarted{Attempt: a.ref.Attempt, Box: box, Base: a.now.Base, Fence: hex.EncodeToString(sum[:])})
	if err != nil {
		return err
	}
	if err := a.record(started); err != nil {
		return err
	}
	crash.At("dispatch.task.started")
	return a.run.Settle(ctx)
}

// brief is what the loop is told of the tree before its first turn. The rehearsal plays plans and reads
// nothing of it; a loop with turns was told.
func (a *attempt) brief(ctx context.Context, told bool) (string, error) {
	if told || a.box == nil || !a.task.Kind.Thinks() {
		return "", nil
	}
	provider, _, err := a.resolve(ctx)
	if err != nil || provider == ports.Rehearsal {
		return "", err
	}
	before, err := a.run.Before(ctx, a.ref.Task)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(before + "\n\n" + a.host.Briefs.Text(ctx, a.task.Goal, func(ctx context.Context, t tool.Tool, args json.RawMessage) (tool.Result, error) {
		return a.inBox(ctx, a.box, t, args)
	})), nil
}

// spent returns how much of its time the attempt has used since its boxes were opened.
func (a *attempt) spent() time.Duration { return awake.Now() - a.began - (a.run.Waited() - a.waited) }

// timeUsedUp reports whether the attempt's loop has worked for as long as it may.
func (a *attempt) timeUsedUp() bool {
	return a.worked >= time.Duration(a.task.Budget.WallS)*time.Second
}

func (a *attempt) outOfTime() error {
	return fault.New("", fault.Exhausted, "", fmt.Errorf("its budget of %d seconds is used up", a.task.Budget.WallS))
}

// endsAfter is how long after a failed call to wait for the news that the box has ended.
const endsAfter = time.Second

// boxEnded returns why the task's box ended, if it has ended or does so within a time; nil otherwise. The
// error is fault.Unavailable, so that the task goes on in another box. For tasks of fixed steps and agent
// programs it is fault.Exhausted if they used up the box's resources, for they would do so again.
func (a *attempt) boxEnded(within time.Duration) error {
	if a.box == nil || !endsWithin(a.box, within) {
		return nil
	}
	err, code := cmp.Or(a.box.Err(), loops.ErrGone), fault.Unavailable
	if (!a.task.Kind.Thinks() || a.task.Program != "") && fault.Is(err, fault.Exhausted) {
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

// stop ends the attempt's boxes. When it returns, nothing more is accepted under the attempt's token,
// nothing of the task runs, and no call is under way.
func (a *attempt) stop(loop ports.Box) {
	a.requests.Close(func() {
		var kills sync.WaitGroup
		for _, b := range []ports.Box{a.box, loop} {
			if b != nil {
				kills.Go(func() { a.host.kill(a.ref.Run, b) })
			}
		}
		kills.Wait()
	})
	a.endEffects()
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

// inputs reads the inputs that the task names. note is what the model is to know of the network.
func (a *attempt) inputs(ctx context.Context, note string) ([]associate.Input, error) {
	var out []associate.Input
	for _, in := range a.task.Inputs {
		switch {
		case in.Document != "":
			doc, err := a.host.Documents.Get(ctx, in.Document)
			if err != nil {
				return nil, fmt.Errorf("input document %s: %w", in.Document, err)
			}
			out = append(out, associate.Input{Name: "document " + doc.Title, Text: harness.Clip(doc.Body, 16<<10)})
		case in.File != "":
			b, err := a.host.Workspace.ReadFile(ctx, in.File, 16<<10)
			if err != nil {
				return nil, fmt.Errorf("input file %s: %w", in.File, err)
			}
			out = append(out, associate.Input{Name: in.File, Text: harness.Clip(string(b), 16<<10)})
		case in.Blob != "":
			return nil, fault.New("", fault.Invalid, "Put what is in the blob into a file first.", errors.New("blobs can't be given to a task yet"))
		}
	}
	if found := a.findings(); found != "" {
		out = append(out, associate.Input{Name: "What this run has found so far", Text: found})
	}
	if done := outside.Before(a.run, a.ref); done != "" {
		out = append(out, associate.Input{Name: "What this run has changed outside so far", Text: done})
	}
	if note != "" {
		out = append(out, associate.Input{Name: "network", Text: note})
	}
	if catalogue.ModelGranted(a.task) && a.task.Program == "" {
		out = append(out, associate.Input{Name: "model", Text: modelNote})
	}
	return out, nil
}
