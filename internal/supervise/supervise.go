package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"github.com/thejerf/suture/v4"
)

// Options of a tree. Zero values mean the defaults.
type Options struct {
	Name string
	// Limit is how many failures of a service in a row end the tree; 10.
	Limit int
	// SteadyAfter is how long a service must run for its next failure to count as the first of
	// a new row; one minute.
	SteadyAfter time.Duration
	// Backoff is the pause before a service is restarted that has failed several times in
	// a short time; two seconds. After the first failures there is no pause.
	Backoff time.Duration
	// Passes reports whether a failure, such as a full disk, is expected to pass by
	// itself. Such failures do not count towards Limit.
	Passes func(error) bool
	// OnFailure is called after each failure, in the goroutine of the service. Its context ends
	// after a few seconds.
	OnFailure func(context.Context, Failure)
	// Escalate is called once, in a goroutine of its own, when a service has reached
	// Limit. It must close the tree, which still exists then.
	Escalate func(error)
}

// Failure is one failure of a service.
type Failure struct {
	Service string
	Err     error // a *PanicError after a panic
	InRow   int   // how many failures there were since the service last ran steadily
	Again   bool  // whether it is restarted
}

// Health describes a service that does not run steadily.
type Health struct {
	Service  string
	Failures int // in a row
	Err      error
	Since    time.Time // when the first of them was
}

// PanicError is a panic as an error. Its text does not contain the stack, which is for the
// program's log and not for people.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Safely runs f and turns a panic into an error.
func Safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}

// Stack returns the stack of the panic in err; "" when there was none.
func Stack(err error) string {
	var p *PanicError
	if !errors.As(err, &p) {
		return ""
	}
	return string(p.Stack)
}

// onFailureWithin bounds a call of OnFailure.
const onFailureWithin = 5 * time.Second

// Tree holds the services of one computer.
type Tree struct {
	options Options
	root    *suture.Supervisor
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	work    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	escalated bool
	failing   map[string]Health
}

// New starts an empty tree. It lives until Close, even if ctx ends before; the values of
// ctx reach the services.
func New(ctx context.Context, o Options) *Tree {
	if o.Limit == 0 {
		o.Limit = 10
	}
	if o.SteadyAfter == 0 {
		o.SteadyAfter = time.Minute
	}
	if o.Backoff == 0 {
		o.Backoff = 2 * time.Second
	}
	t := &Tree{options: o, failing: map[string]Health{}}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.root = suture.New(o.Name, t.spec())
	t.ended = make(chan struct{})
	go func() {
		defer close(t.ended)
		_ = t.root.Serve(t.ctx) // it ends only when it is asked to; failures were reported by then
	}()
	return t
}

// spec configures the supervisors of a tree. The services report failures themselves, and
// Close waits for the services itself.
func (t *Tree) spec() suture.Spec {
	return suture.Spec{EventHook: func(suture.Event) {}, DontPropagateTermination: true, FailureThreshold: 2, FailureBackoff: t.options.Backoff, Timeout: time.Second}
}

// Service runs f until the tree ends. It is restarted when it returns an error or panics;
// returning nil ends it for good.
func (t *Tree) Service(name string, f func(context.Context) error) {
	t.start(func() {
		// Each service has a supervisor of its own, so that a pause after one's failures
		// does not delay others.
		own := suture.New(name, t.spec())
		own.Add(&service{t, name, f})
		t.root.Add(own)
	})
}

// Task runs f once. If it fails or panics, this is reported and affects nothing else.
func (t *Tree) Task(name string, f func(context.Context) error) {
	t.start(func() {
		t.work.Go(func() {
			if err := Safely(func() error { return f(t.ctx) }); err != nil && t.ctx.Err() == nil {
				t.tell(Failure{Service: name, Err: err, InRow: 1})
			}
		})
	})
}

// start calls f unless the tree is being closed.
func (t *Tree) start(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		f()
	}
}

// Context returns a context that ends with the tree.
func (t *Tree) Context() context.Context { return t.ctx }

// Health lists the services that are failing now, by name.
func (t *Tree) Health() []Health {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Health
	for _, h := range t.failing {
		out = append(out, h)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Service < out[j].Service })
	return out
}

// Stop ends the services without waiting for them.
func (t *Tree) Stop() { t.cancel() }

// Close ends the services and waits for them, each time it is called.
func (t *Tree) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	<-t.ended
	t.work.Wait()
}

// service is one supervised function, as suture runs it.
type service struct {
	tree *Tree
	name string
	run  func(context.Context) error
}

// String names the service to suture.
func (s *service) String() string { return s.name }

// Serve implements suture.Service.
func (s *service) Serve(ctx context.Context) error {
	t := s.tree
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return suture.ErrDoNotRestart
	}
	t.work.Add(1) // Close waits by this, because suture stops waiting for a service after a while
	t.mu.Unlock()
	defer t.work.Done()
	steady := time.AfterFunc(t.options.SteadyAfter, func() { t.recovered(s.name) })
	defer steady.Stop()
	err := Safely(func() error { return s.run(ctx) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		t.recovered(s.name)
		return suture.ErrDoNotRestart
	}
	return t.failed(s.name, err)
}

// recovered records that a service runs steadily.
func (t *Tree) recovered(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failing, name)
}

// failed counts and reports a failure, and decides whether the service is restarted.
func (t *Tree) failed(name string, err error) error {
	passes := t.options.Passes != nil && t.options.Passes(err)
	t.mu.Lock()
	h := t.failing[name]
	if h.Service == "" {
		h = Health{Service: name, Since: time.Now()}
	}
	h.Err = err
	if !passes {
		h.Failures++
	}
	t.failing[name] = h
	beyond := h.Failures >= t.options.Limit && !t.escalated
	t.escalated = t.escalated || beyond
	t.mu.Unlock()
	t.tell(Failure{Service: name, Err: err, InRow: h.Failures, Again: !beyond})
	if !beyond {
		return err
	}
	if t.options.Escalate != nil {
		go t.options.Escalate(fmt.Errorf("%s failed %d times in a row: %w", name, h.Failures, err)) // in a goroutine, for it closes the tree, which waits for this service
	}
	return errors.Join(suture.ErrDoNotRestart, err)
}

func (t *Tree) tell(f Failure) {
	if t.options.OnFailure == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, onFailureWithin)
	defer cancel()
	// If reporting panics too, there is nobody left to report it to.
	_ = Safely(func() error { t.options.OnFailure(ctx, f); return nil })
}
