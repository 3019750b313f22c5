package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/thejerf/suture/v4"
)

// Options of a tree. Zero values mean the defaults.
type Options struct {
	Name string
	// Under is the tree that this one belongs to; nil: it is a root.
	Under *Tree
	// Limit is how many failures of a part within Within give it up; 8 within ten minutes.
	Limit  int
	Within time.Duration
	// SteadyAfter is how long a part must run to count as running again; one minute.
	SteadyAfter time.Duration
	// Backoff is the pause after a part's first failure; after each further one in a row it is
	// doubled, up to Most. 100 ms and half a minute.
	Backoff, Most time.Duration
	// Passes reports whether a failure, such as a full disk, is expected to pass by itself. The
	// part waits for that: such failures do not count towards Limit and are not reported.
	Passes func(error) bool
	// Report is called with what became of a part, in its goroutine. Its context ends after a
	// few seconds.
	Report func(context.Context, Report)
	// Escalate is called once, in a goroutine of its own, when a part that the tree can't do
	// without is given up. It must close the tree, which still exists then.
	Escalate func(error)
}

// Part is something that runs as long as its tree.
type Part struct {
	Name string
	// Run runs it until the context ends. It is restarted when Run returns an error or panics;
	// returning nil ends it for good.
	Run func(context.Context) error
	// Optional says that its tree goes on without it once it was given up.
	Optional bool
	// These are used instead of the tree's unless they are zero.
	Limit         int
	Backoff, Most time.Duration
	Passes        func(error) bool
	// Mended blocks until what made the part fail may have been mended, or the context ends. Then
	// it is started at once, as if it had not failed before, even if it was given up. nil: never.
	Mended func(context.Context)
	// Rest is after how long a part that is Optional is started again although it was given up;
	// 0: not by itself.
	Rest time.Duration
	// GaveUp is called when it was given up, before anybody else learns of it.
	GaveUp func(error)
	// Waits says what it waits for, such as for somebody to need it; "" if for nothing.
	Waits func() string
	// PID is its process, if it has one now; otherwise 0.
	PID func() int
}

// onReportWithin bounds a call of Report.
const onReportWithin = 5 * time.Second

// Tree holds the parts of a machine or of one of its computers.
type Tree struct {
	options Options
	root    *suture.Supervisor
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	work    sync.WaitGroup

	mu        sync.Mutex
	stopped   bool
	closed    bool
	escalated bool
	parts     []*part
}

// New starts an empty tree. It lives until Close, even if ctx or the tree above it ends
// before; the values of ctx reach the parts.
func New(ctx context.Context, o Options) *Tree {
	if o.Limit == 0 {
		o.Limit = 8
	}
	if o.Within == 0 {
		o.Within = 10 * time.Minute
	}
	if o.SteadyAfter == 0 {
		o.SteadyAfter = time.Minute
	}
	if o.Backoff == 0 {
		o.Backoff = 100 * time.Millisecond
	}
	if o.Most == 0 {
		o.Most = 30 * time.Second
	}
	t := &Tree{options: o, ended: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.root = suture.New(o.Name, suture.Spec{
		// Parts report failures and pause by themselves, each alone, and Close waits by itself.
		EventHook: func(suture.Event) {}, DontPropagateTermination: true, FailureThreshold: 1 << 40, Timeout: time.Second,
	})
	branch := &branch{t}
	if o.Under == nil || !o.Under.start(func() bool { return o.Under.add(branch) }) {
		go func() { _ = branch.Serve(t.ctx) }() // Close waits for it
	}
	return t
}

// branch is a whole tree as a service of the one above it.
type branch struct{ tree *Tree }

// String names the tree to suture.
func (b *branch) String() string { return b.tree.options.Name }

// Serve implements suture.Service. It ends only when its own tree is closed: whoever closes the
// one above has closed this before, and waits for it there.
func (b *branch) Serve(context.Context) error {
	defer close(b.tree.ended)
	_ = b.tree.root.Serve(b.tree.ctx) // failures were reported by then
	return suture.ErrDoNotRestart
}

// Add runs a part until the tree ends.
func (t *Tree) Add(p Part) {
	if p.Limit == 0 {
		p.Limit = t.options.Limit
	}
	if p.Backoff == 0 {
		p.Backoff = t.options.Backoff
	}
	if p.Most == 0 {
		p.Most = t.options.Most
	}
	if p.Passes == nil {
		p.Passes = t.options.Passes
	}
	s := &part{Part: p, tree: t, again: make(chan struct{}, 1), health: Health{Name: p.Name, State: Running, Since: time.Now()}}
	t.start(func() bool {
		t.parts = append(t.parts, s)
		return t.add(s)
	})
}

// add hands a service to the supervisor, and says whether it will run. mu is held.
func (t *Tree) add(s suture.Service) bool {
	if !t.stopped {
		t.root.Add(s)
	}
	return !t.stopped
}

// Task runs f once. If it fails or panics, this is reported and affects nothing else.
func (t *Tree) Task(name string, f func(context.Context) error) {
	t.start(func() bool {
		t.work.Go(func() {
			if err := Safely(func() error { return f(t.ctx) }); err != nil && t.ctx.Err() == nil {
				t.report(Report{Part: name, Kind: Failed, Err: err, Failures: 1, Once: true})
			}
		})
		return true
	})
}

// start calls f unless the tree is being closed, and returns what it does.
func (t *Tree) start(f func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && f()
}

// Again starts the parts again that were given up, as if they had not failed before.
func (t *Tree) Again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		if p.health.State == GivenUp {
			select {
			case p.again <- struct{}{}:
			default:
			}
		}
	}
}

// Context returns a context that ends with the tree.
func (t *Tree) Context() context.Context { return t.ctx }

// Health describes the tree's parts, in the order in which they were added, without those that
// have ended for good.
func (t *Tree) Health() []Health {
	t.mu.Lock()
	parts, out := t.parts, make([]Health, len(t.parts))
	for i, p := range parts {
		out[i] = p.health
	}
	t.mu.Unlock()
	for i, p := range parts {
		if out[i].State != Running {
			continue
		}
		if p.PID != nil {
			out[i].PID = p.PID()
		}
		if p.Waits == nil {
			continue
		}
		if what := p.Waits(); what != "" {
			out[i].State, out[i].Reason = Waiting, what
		}
	}
	return out
}

// Stop ends the parts without waiting for them. The trees under this one, and tasks, go on until
// they are closed.
func (t *Tree) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.cancel()
}

// Close ends the parts and waits for them, each time it is called.
func (t *Tree) Close() {
	t.mu.Lock()
	t.closed, t.stopped = true, true
	t.mu.Unlock()
	t.cancel()
	<-t.ended
	t.work.Wait()
}

func (t *Tree) report(r Report) {
	if t.options.Report == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, onReportWithin)
	defer cancel()
	// If reporting panics too, there is nobody left to report it to.
	_ = Safely(func() error { t.options.Report(ctx, r); return nil })
}

// escalate says once that the tree can't go on. It does so in a goroutine, for it closes the
// tree, which waits for the part that was given up.
func (t *Tree) escalate(err error) {
	t.mu.Lock()
	before := t.escalated
	t.escalated = true
	t.mu.Unlock()
	if before || t.options.Escalate == nil {
		return
	}
	go func() {
		if err := Safely(func() error { t.options.Escalate(err); return nil }); err != nil {
			t.report(Report{Part: "ending " + t.options.Name, Kind: Failed, Err: err, Failures: 1, Once: true})
		}
	}()
}

// givenUp is the error of a part that was given up.
func givenUp(name string, failures int, within time.Duration, err error) error {
	return fmt.Errorf("%s failed %d times within %s: %w", name, failures, within.Round(time.Second), err)
}
