package awake

import (
	"context"
	"sync"
	"time"
)

// Timer calls a function after some time in which the process ran.
type Timer struct {
	clock *Clock
	call  func()

	mu      sync.Mutex
	until   time.Duration
	timer   *time.Timer
	release func() // nil: it does not run
}

// AfterFunc is time.AfterFunc in time in which this process ran.
func AfterFunc(d time.Duration, f func()) *Timer { return process.AfterFunc(d, f) }

// AfterFunc calls f, in a goroutine of its own, once the process has run for d.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, call: f}
	t.Reset(d)
	return t
}

// Reset has the function called after d from now on, whether or not it was.
func (t *Timer) Reset(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.release == nil {
		t.release = t.clock.Hold()
	}
	t.until = t.clock.Now() + d
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
		return
	}
	t.timer.Reset(d)
}

// Stop keeps the function from being called, unless it was; true: it was not.
func (t *Timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end()
}

// end lets go of the clock. mu is held.
func (t *Timer) end() bool {
	if t.release == nil {
		return false
	}
	t.timer.Stop()
	t.release()
	t.release = nil
	return true
}

func (t *Timer) fire() {
	t.mu.Lock()
	if t.release == nil {
		t.mu.Unlock()
		return
	}
	if left := t.until - t.clock.Now(); left > 0 {
		t.timer.Reset(left)
		t.mu.Unlock()
		return
	}
	t.end()
	t.mu.Unlock()
	t.call()
}

// WithTimeout is context.WithTimeout in time in which this process ran.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithTimeoutCause(ctx, d, context.DeadlineExceeded)
}

// WithTimeoutCause is context.WithTimeoutCause in time in which this process ran.
// The context has no Deadline: nobody can say when, by the wall's clock, it is.
func WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return process.WithTimeoutCause(ctx, d, cause)
}

// WithTimeoutCause ends with cause once the process has run for d.
func (c *Clock) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	out := &timed{Context: inner, done: make(chan struct{})}
	context.AfterFunc(inner, func() { close(out.done) })
	timer := c.AfterFunc(d, func() {
		out.mu.Lock()
		out.over = inner.Err() == nil
		out.mu.Unlock()
		cancel(cause)
	})
	// Whatever ends it, its timer is not needed any more.
	context.AfterFunc(inner, func() { timer.Stop() })
	return out, func() { cancel(context.Canceled) }
}

// timed is a context whose end by its time is a context.DeadlineExceeded. Done is
// a channel of its own, so that contexts derived from it take its Err over.
type timed struct {
	context.Context
	done chan struct{}

	mu   sync.Mutex
	over bool
}

// Done implements context.Context.
func (t *timed) Done() <-chan struct{} { return t.done }

// Err implements context.Context.
func (t *timed) Err() error {
	err := t.Context.Err()
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return context.DeadlineExceeded
	}
	return err
}

// AfterFunc spares contexts that are derived from it a goroutine each.
func (t *timed) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(t.Context, f) }
