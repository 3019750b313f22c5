package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// Times are the dispatcher's patience. Zero values get the defaults.
type Times struct {
	Beat    time.Duration // how often a loop is to give a sign of life; 2 s
	Silence time.Duration // a loop that gives none for so long is dead; 20 s
	Grace   time.Duration // beyond a task's wall clock before it is killed; 15 s
	CleanUp time.Duration // for undoing what a task left; 2 min
	// TakeBack is how long it is tried to take back what a task showed live, from
	// each start on; then it stays. 10 min.
	TakeBack time.Duration
	RunWall  time.Duration // of a run whose prompt sets none; 1 h
	// Approval is how long a task waits for a person; then it is denied. 5 min.
	Approval time.Duration
}

func (t Times) withDefaults() Times {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&t.Beat, 2*time.Second)
	def(&t.Silence, 20*time.Second)
	def(&t.Grace, 15*time.Second)
	def(&t.CleanUp, 2*time.Minute)
	def(&t.TakeBack, 10*time.Minute)
	def(&t.RunWall, time.Hour)
	def(&t.Approval, 5*time.Minute)
	return t
}

// Options put a dispatcher together. CID, Log, Blobs, Boxes, Workspace,
// Documents, Models, Egress and Logger are required.
type Options struct {
	CID       contract.CID
	Log       ports.Log
	Blobs     ports.Blobs
	Boxes     ports.Boxes
	Workspace ports.Workspace
	Documents ports.Documents
	Models    ports.Models
	Egress    ports.Egress
	// Beyond lists what a spec names beyond the computer's grant: a person is
	// asked for it. nil: everything it names.
	Beyond func(ctx context.Context, spec contract.EgressSpec) ([]string, error)
	Logger *slog.Logger
	// Tools are what the host carries out for tasks beside git.
	Tools []catalogue.HostTool
	// Render is the third part of the shell's verification; without it the
	// verification says that only type check and build were done.
	Render ports.Renderer
	// Install installs what lock files name; without it nothing is.
	Install ports.Installer
	// Publish sends a message that is not logged: the result of a run, on
	// contract.SubjectResult, and the Director's words while they come, on
	// contract.SubjectWords. nil sends none.
	Publish func(ctx context.Context, subject string, data []byte) error
	// Past answers what the log holds of runs.
	Past ports.Past
	// Budget is the owner's bound of every run; a prompt can only lower it.
	Budget   contract.Budget
	Turns    int // model turns of one loop; 0 leaves the harness's default
	Parallel int // tasks of one computer at the same time; 3
	Runs     int // runs of one computer at the same time, the others wait; 4
	Times    Times
	Now      func() time.Time
}

// Bounds of a run.
const (
	maxTasks    = 60 // of one run
	maxAttempts = 3  // of one task
	maxStarts   = 3  // of one attempt, over restarts
	maxOpenings = 3  // of a Director's box that crashes, and of a check's
)

// errClosing is the cause of every context when the dispatcher closes: what is
// under way stays unfinished in the log, for Recover.
var errClosing = errors.New("the computer goes to sleep")

// errCancelled is the cause when the user cancels a run.
var errCancelled = errors.New("cancelled by the user")

// Dispatcher owns the runs of one computer. It is safe for concurrent use.
type Dispatcher struct {
	options Options
	log     *slog.Logger
	tools   *catalogue.Catalogue
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	tasks   slots.Slots // one per task that may work
	slots   slots.Slots // one per run that may go on
	// publishing is held while the live tree is being changed, so that one
	// task's publish never meets another's half-way.
	publishing sync.Mutex
	approving  sync.Mutex // held while it is counted who asks, and asked

	unwatch func() // ends being told that choir stood still

	mu     sync.Mutex
	runs   map[string]*run
	closed bool
}

// New checks the options; it starts nothing.
func New(o Options) (*Dispatcher, error) {
	const op = "dispatch.New"
	if err := o.CID.Validate(); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	for name, missing := range map[string]bool{
		"Log": o.Log == nil, "Blobs": o.Blobs == nil, "Boxes": o.Boxes == nil, "Workspace": o.Workspace == nil,
		"Documents": o.Documents == nil, "Models": o.Models == nil, "Egress": o.Egress == nil, "Logger": o.Logger == nil,
	} {
		if missing {
			return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("no %s", name))
		}
	}
	if o.Parallel <= 0 {
		o.Parallel = 3
	}
	if o.Runs <= 0 {
		o.Runs = 4
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Times = o.Times.withDefaults()
	tools, err := catalogue.New(append([]catalogue.HostTool{gitTool()}, o.Tools...))
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	d := &Dispatcher{options: o, log: o.Logger, tools: tools, runs: map[string]*run{}, tasks: make(slots.Slots, o.Parallel), slots: make(slots.Slots, o.Runs)}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	d.unwatch = awake.Notify(d.stoodStill)
	return d, nil
}

// Close stops everything under way, without ending it: Recover goes on from
// the log. It returns when every box of the runs is gone.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.unwatch()
	d.cancel(errClosing)
	d.wg.Wait()
	return nil
}

// Prompt is a person's intention. ID, when set, makes a repeated Submit the
// same prompt; it must be a UUIDv7.
type Prompt struct {
	ID     string
	By     contract.Actor
	Text   string
	Model  string
	Budget contract.Budget
}

// Submit appends prompt.submitted and starts its run. It returns as soon as the
// event is on disk.
func (d *Dispatcher) Submit(ctx context.Context, p Prompt) (runID string, sequence uint64, err error) {
	const op = "dispatch.Submit"
	payload := contract.PromptSubmitted{Text: p.Text, Model: p.Model, Budget: p.Budget}
	if err := payload.Validate(); err != nil {
		return "", 0, fault.New(op, fault.Invalid, "", err)
	}
	if p.ID == "" {
		p.ID = contract.NewID()
	}
	runID = contract.DeriveID(p.ID, "run")
	before := d.options.Log.Last()
	// A prompt that is stored has its run, though who sent it has hung up.
	ctx, cancel := untilBoth(ctx, d.ctx)
	defer cancel()
	es, err := d.options.Log.Append(ctx, contract.Draft{ID: p.ID, Actor: p.By, Type: "prompt.submitted",
		Subject: runID, Data: payload, Run: runID, Correlation: p.ID})
	if err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	crash.At("dispatch.prompt.submitted")
	if es[0].Sequence <= before {
		// Submitted before: its run goes on, or has ended, or the first answer was
		// lost on the way from the log.
		return runID, es[0].Sequence, fault.Wrap(op, d.takeUpOne(ctx, runID))
	}
	s := story.New(runID)
	s.Apply(es[0], &payload)
	if _, err := d.launch(&interruptedRun{story: s, upTo: s.Last}); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	return runID, es[0].Sequence, nil
}

// launch starts a run's goroutine, once. It goes on from wherever the story
// stands, or, when events were lost on which that hangs, to its end.
func (d *Dispatcher) launch(at *interruptedRun) (*run, error) {
	s := at.story
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fault.New("dispatch", fault.Unavailable, "Try again when the computer is awake.", errClosing)
	}
	if r := d.runs[s.ID]; r != nil {
		return r, nil
	}
	r := newRun(d, s, at.upTo)
	if gone := matters(s, at.lost); gone != nil {
		r.cancel(gone)
	}
	d.runs[s.ID] = r
	d.wg.Go(func() {
		defer r.cancel(nil)
		// The story is followed until the run is let go, also when all are.
		following, stop := context.WithCancel(context.WithoutCancel(d.ctx))
		var follow sync.WaitGroup
		follow.Go(func() { r.follow(following) })
		d.own(r)
		r.drops.Wait() // every task has ended, so none begins another
		r.doc.Close()
		d.mu.Lock()
		delete(d.runs, s.ID)
		d.mu.Unlock()
		stop()
		follow.Wait()
		r.unfollowed(fault.New("", fault.NotFound, "Only a run that has not ended can be told something.", errEnded))
		d.options.Models.Forget(s.ID)
	})
	return r, nil
}

// own is a run's goroutine: it waits for a slot, drives the run, and reports
// what broke, so that no run stays under way that nobody drives.
func (d *Dispatcher) own(r *run) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(fmt.Errorf("the dispatcher panicked: %v", p))
		}
	}()
	if r.place.Take(r.ctx) {
		defer r.place.Give()
	}
	r.takeUp(r.ctx)
	if err := r.drive(); err != nil {
		r.fail(err)
	}
}

func (d *Dispatcher) find(op, id string) (*run, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.runs[id]; r != nil {
		return r, nil
	}
	return nil, fault.New(op, fault.NotFound, "Only a run that has not ended can be told something.", fmt.Errorf("no run %q is under way", summary.OneLine(id, 60)))
}

// Command pauses, resumes or cancels a run.
func (d *Dispatcher) Command(ctx context.Context, by contract.Actor, runID string, c contract.RunCommand) (uint64, error) {
	const op = "dispatch.Command"
	r, err := d.find(op, runID)
	if err != nil {
		return 0, err
	}
	seq, err := r.said(ctx, by, "run.commanded", &contract.RunCommanded{Command: c})
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	if c == contract.CommandCancel {
		r.cancel(errCancelled)
	}
	return seq, nil
}

// Steer tells a run something; its Director sees it before its next turn.
func (d *Dispatcher) Steer(ctx context.Context, by contract.Actor, runID, text string) (uint64, error) {
	const op = "dispatch.Steer"
	r, err := d.find(op, runID)
	if err != nil {
		return 0, err
	}
	seq, err := r.said(ctx, by, "run.steered", &contract.RunSteered{Text: text})
	return seq, fault.Wrap(op, err)
}

// Answer answers a question of a run. fault.Conflict: it is answered already.
func (d *Dispatcher) Answer(ctx context.Context, by contract.Actor, runID, questionID, answer string) (uint64, error) {
	const op = "dispatch.Answer"
	r, err := d.find(op, runID)
	if err != nil {
		return 0, err
	}
	if _, err := d.caughtUp(ctx); err != nil { // it may have been asked this instant
		return 0, fault.Wrap(op, err)
	}
	seq, err := r.answer(ctx, by, contract.QuestionAnswered{Question: questionID, Answer: answer})
	return seq, fault.Wrap(op, err)
}

// Open reports whether any run has not ended, even if it only waits for its user, whose
// answer may have a deadline.
func (d *Dispatcher) Open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.runs) > 0
}

// Busy reports whether any run goes on, or is about to. One that only waits for
// its user, to answer or to allow something, does not.
func (d *Dispatcher) Busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.runs {
		if !r.place.Rests() {
			return true
		}
	}
	return false
}
