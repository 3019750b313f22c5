package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/look"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// Options configure a dispatcher. CID, Log, Blobs, Boxes, Workspace, Documents, Models, Egress and Logger
// are required.
type Options struct {
	CID       contract.CID
	Log       ports.Log
	Blobs     ports.Blobs
	Boxes     ports.Boxes
	Workspace ports.Workspace
	Documents ports.Documents
	Models    ports.Models
	Egress    ports.Egress
	// BeyondGrant lists the rules of a spec that go beyond the computer's grant, for which a person is asked.
	// nil: all of them do.
	BeyondGrant func(ctx context.Context, spec contract.EgressSpec) ([]string, error)
	Logger      *slog.Logger
	// Tools are the tools that the host carries out for tasks, besides git.
	Tools []catalogue.HostTool
	// Pages reads pages of the web for tasks, and Search asks a search service; without them no task does.
	Pages  ports.Pages
	Search ports.Search
	// Programs are the agent programs that a task may name, and Version is ours, as they are told.
	Programs map[string]ports.Program
	Version  string
	// Render is the third part of the shell's verification. Without it the verification reports that only
	// type check and build were done.
	Render ports.Renderer
	// Install installs the packages that lock files name; without it none are.
	Install ports.Installer
	// Publish sends messages that are not logged: the result of a run on contract.SubjectResult, and the
	// Director's text on contract.SubjectWords while the model produces it. nil sends none.
	Publish func(ctx context.Context, subject string, data []byte) error
	// Memory is what people told the computer to keep; without it nothing is kept.
	Memory ports.Memory
	// Past answers questions about earlier events of runs.
	Past ports.Past
	// Budget is the owner's bound for every run; a prompt can only lower it.
	Budget  contract.Budget
	Repairs int // how often the loop of an attempt is asked to repair what the checks found; 0: never
	Turns   int // model turns of one loop; 0 leaves the harness's default
	// Review says that of every run of the computer a person looks at what its tasks made before it is published.
	Review bool
	// DirectWords is how many words a prompt of one line has at most that goes to one Associate at once; 0: every
	// prompt is planned, unless its user wants otherwise.
	DirectWords int
	Parallel    int // how many tasks of one computer work at the same time; 3
	Runs        int // how many runs of one computer go on at the same time, while others wait; 4
	Times       ports.Times
	Now         func() time.Time
}

// maxTasks bounds the tasks of one run.
const maxTasks = 60

// Dispatcher owns the runs of one computer. It is safe for concurrent use.
type Dispatcher struct {
	options   Options
	log       *slog.Logger
	tools     *catalogue.Catalogue
	briefs    *look.Briefs
	ctx       context.Context
	cancel    context.CancelCauseFunc
	wg        sync.WaitGroup
	tasks     slots.Slots // one slot for each task that may work
	slots     slots.Slots // one slot for each run that may go on
	host      *task.Host
	feed      *meanwhile.Feed
	approving sync.Mutex // held from counting the open approvals until the new one is in the log

	unwatch func()       // ends the notification that choir stood still
	still   atomic.Int64 // for how long it did in all, in nanoseconds, as far as that is told

	mu     sync.Mutex
	runs   map[string]*run
	parked map[string]*parked // runs that are in none of the others
	left   uint64             // how often a run has left runs
	closed bool
}

// New checks the options; it takes no run up.
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
	o.Times = o.Times.WithDefaults()
	d := &Dispatcher{options: o, log: o.Logger, runs: map[string]*run{}, parked: map[string]*parked{}, tasks: make(slots.Slots, o.Parallel), slots: make(slots.Slots, o.Runs),
		feed: meanwhile.NewFeed(o.Log, o.Workspace.Changed)}
	own := []catalogue.HostTool{task.GitTool(), task.RecallTool(), task.CiteTool()}
	if o.Memory != nil {
		own = append(own, d.rememberTool())
	}
	tools, err := catalogue.New(slices.Concat(own, task.WebTools(o.Pages, o.Search), o.Tools), slices.Sorted(maps.Keys(o.Programs)))
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	d.tools = tools
	d.briefs = &look.Briefs{Tools: tools, Now: o.Now}
	d.ctx, d.cancel = context.WithCancelCause(awake.Patient(context.Background(), o.Times.Projection))
	d.host = task.NewHost(task.Options{CID: o.CID, Blobs: o.Blobs, Boxes: o.Boxes, Workspace: o.Workspace, Documents: o.Documents, Models: o.Models,
		Egress: o.Egress, BeyondGrant: o.BeyondGrant, Logger: o.Logger, Tools: tools, Briefs: d.briefs, Render: o.Render, Install: o.Install, Programs: o.Programs, Version: o.Version, Repairs: o.Repairs, Turns: o.Turns,
		Parallel: o.Parallel, Times: o.Times, Now: o.Now})
	d.unwatch = awake.Notify(d.stoodStill)
	d.wg.Go(d.parkIdle)
	return d, nil
}

// Offer makes tools of the host the ones that tasks may use besides Options.Tools. What was offered
// before is replaced, for runs under way, too.
func (d *Dispatcher) Offer(added []catalogue.HostTool) error {
	return fault.Wrap("dispatch.Offer", d.tools.Add(added))
}

// Close stops everything under way without ending it: Recover continues it from the log. It returns when
// all boxes of the runs have ended.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	d.closed = true
	for id := range d.parked {
		d.forget(id)
	}
	d.mu.Unlock()
	d.unwatch()
	d.cancel(task.ErrClosing)
	d.wg.Wait()
	return nil
}

// Prompt is what a person asks for. If ID is set, which must be a UUIDv7, submitting the same ID again
// does not make another prompt.
type Prompt struct {
	ID     string
	By     contract.Actor
	Text   string
	Model  string
	Budget contract.Budget
	// Continues is the ended run of this computer that the new run goes on from, if any.
	Continues string
	Route     contract.Route
	// Effort is how much the run's models think; "": what the owner says.
	Effort contract.Effort
	// Summarise is an address or a path of which a document with citations is wanted; Text then says so in words.
	Summarise string
	// Review says that a person looks at what its tasks made before it is published.
	Review bool
	// Traceparent is the W3C trace context of who asks, "" if there is none.
	Traceparent string
}

// Submit appends prompt.submitted and starts its run. It returns as soon as the event is on disk.
func (d *Dispatcher) Submit(ctx context.Context, p Prompt) (runID string, sequence uint64, err error) {
	const op = "dispatch.Submit"
	payload := contract.PromptSubmitted{Text: p.Text, Model: p.Model, Budget: p.Budget, Continues: p.Continues, Route: p.Route, Effort: p.Effort, Summarise: p.Summarise, Review: p.Review}
	if err := payload.Validate(); err != nil {
		return "", 0, fault.New(op, fault.Invalid, "", err)
	}
	if p.Summarise != "" && (p.Continues != "" || p.Route != "") {
		return "", 0, fault.New(op, fault.Invalid, "Leave them out.", &contract.FieldError{Field: "summarise", Reason: "is one task of its own, which continues no run and has no other route"})
	}
	if p.Continues != "" {
		if p.Route == contract.RouteDirect {
			return "", 0, fault.New(op, fault.Invalid, "Leave one of them out.", &contract.FieldError{Field: "route", Reason: "is direct, but a prompt that continues a run is planned: it is the Director who is told of that run"})
		}
		if _, err := d.earlier(ctx, p.Continues); err != nil {
			return "", 0, fault.Wrap(op, err)
		}
	}
	if p.ID == "" {
		p.ID = contract.NewID()
	}
	runID = contract.DeriveID(p.ID, "run")
	before := d.options.Log.Last()
	// A stored prompt must get its run even if the client has disconnected.
	ctx, cancel := untilBoth(ctx, d.ctx)
	defer cancel()
	es, err := d.options.Log.Append(ctx, contract.Draft{ID: p.ID, Actor: p.By, Type: "prompt.submitted",
		Subject: runID, Data: payload, Run: runID, Correlation: p.ID, Traceparent: p.Traceparent})
	if err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	crash.At("dispatch.prompt.submitted")
	if es[0].Sequence <= before {
		// The prompt was submitted before: its run goes on, or has ended, or was never started because
		// the log's answer was lost.
		return runID, es[0].Sequence, fault.Wrap(op, d.takeUpOne(ctx, runID))
	}
	s := story.New(runID)
	s.Apply(es[0], &payload)
	if _, err := d.launch(&interruptedRun{story: s, upTo: s.Last}); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	return runID, es[0].Sequence, nil
}

// launch starts a run's goroutine, unless it is running. It continues from where the story stands; nil if that is old. If
// events that this depends on were lost, it only ends the run.
func (d *Dispatcher) launch(at *interruptedRun) (*run, error) {
	s := at.story
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errAsleep()
	}
	if r := d.runs[s.ID]; r != nil {
		return r, nil
	}
	if at.old != nil && at.old() {
		return nil, nil
	}
	d.feed.Begin(at.upTo)
	r := newRun(d, s, at.upTo)
	if p := d.forget(s.ID); p != nil {
		r.lost = p.lost + time.Duration(d.still.Load()) - p.still // since it was parked, its user could answer otherwise
	}
	if gone := matters(s, at.lost); gone != nil {
		r.cancel(gone)
	}
	d.runs[s.ID] = r
	d.wg.Go(func() {
		defer r.sleep(nil)
		// The story is followed until the run's goroutine is done, also while the dispatcher closes.
		following, stop := context.WithCancel(context.WithoutCancel(d.ctx))
		var follow sync.WaitGroup
		follow.Go(func() { r.follow(following) })
		d.own(r)
		r.drops.Wait() // all tasks have ended, so no further removal begins
		r.doc.Close()
		ended, goesOn := d.leave(r)
		stop()
		follow.Wait()
		r.unfollowed(fault.New("", fault.NotFound, "Only a run that has not ended can be told something.", errEnded))
		close(r.away)
		if ended {
			d.options.Models.Forget(s.ID)
		}
		if goesOn {
			d.goOn(s.ID, nil)
		}
	})
	return r, nil
}

func errAsleep() error {
	return fault.New("dispatch", fault.Unavailable, "Try again when the computer is awake.", task.ErrClosing)
}

// own is a run's goroutine. It waits for a slot, drives the run, and reports the run as failed when that
// breaks, so that no run stays open without anybody who drives it.
func (d *Dispatcher) own(r *run) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(fmt.Errorf("the dispatcher panicked: %v", p))
		}
	}()
	took := r.queued()
	if r.place.Take(r.ctx) {
		defer r.place.Give()
	}
	took()
	r.takeUp(r.ctx)
	if err := r.drive(); err != nil {
		r.fail(err)
	}
}

// Open reports whether any run has not ended, even if it only waits for its user, whose
// answer may have a deadline.
func (d *Dispatcher) Open() bool {
	d.mu.Lock() // one that is being parked is in one of the two
	runs, open := slices.Collect(maps.Values(d.runs)), false
	for _, p := range d.parked {
		open = open || !p.looked
	}
	d.mu.Unlock()
	return open || slices.ContainsFunc(runs, func(r *run) bool { return !r.onlyLookedAt() })
}

// Busy reports whether any run goes on or is about to. A run that only waits for its user, to answer or
// to allow something, does not count.
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
