package awake

import (
	"context"
	"sync"
	"time"
)

// Timer calls a function after the process has run for some time.
type Timer struct {
	clock *Clock
	call  func()

	mu      sync.Mutex
	until   time.Duration
	timer   *time.Timer
	release func() // nil: the timer is not running
}

// AfterFunc is time.AfterFunc, but counts only time in which this process ran.
func AfterFunc(d time.Duration, f func()) *Timer { return process.AfterFunc(d, f) }

// AfterFunc calls f, in a goroutine of its own, once the process has run for d.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, call: f}
	t.Reset(d)
	return t
}

// Reset makes the timer call its function after d from now, whether or not it has called it
// before.
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

// Stop prevents the call of the function; it returns false if the timer had fired or been
// stopped.
func (t *Timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end()
}

// end stops the timer and releases the clock. The caller holds mu.
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

// WithTimeout is context.WithTimeout, but counts only time in which this process ran.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithTimeoutCause(ctx, d, context.DeadlineExceeded)
}

// WithTimeoutCause is context.WithTimeoutCause, but counts only time in which this process
// ran. The context has no Deadline, because its end is not known in wall-clock time.
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
	// The timer is not needed any more, whatever has ended the context.
	context.AfterFunc(inner, func() { timer.Stop() })
	return out, func() { cancel(context.Canceled) }
}

// timed is a context whose Err is context.DeadlineExceeded when its time is over. Done is a
// channel of its own, so that derived contexts take this Err over.
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

// AfterFunc saves derived contexts a goroutine each; package context calls it.
func (t *timed) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(t.Context, f) }
