package supervise_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/supervise"
)

// told collects the failures that were reported.
type told struct {
	mu   sync.Mutex
	list []supervise.Failure
	grew chan struct{}
}

func (h *told) hear(_ context.Context, f supervise.Failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, f)
	select {
	case h.grew <- struct{}{}:
	default:
	}
}

func (h *told) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.list)
}

func options(h *told, escalated chan error) supervise.Options {
	h.grew = make(chan struct{}, 1)
	return supervise.Options{Name: "test", Limit: 4, SteadyAfter: time.Hour, Backoff: time.Millisecond, OnFailure: h.hear, Escalate: func(err error) { escalated <- err }}
}

func wait[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not come about", what)
	}
	return v
}

// TestAPanicIsOneServicesFailure shows that a service that panics is restarted, and that the others
// are not affected.
func TestAPanicIsOneServicesFailure(t *testing.T) {
	var h told
	tree := supervise.New(t.Context(), options(&h, make(chan error, 1)))
	defer tree.Close()
	runs := make(chan int, 10)
	var n atomic.Int32
	tree.Service("frail", func(ctx context.Context) error {
		i := int(n.Add(1))
		runs <- i
		if i < 3 {
			panic("boom")
		}
		<-ctx.Done()
		return nil
	})
	var steady atomic.Int32
	up := make(chan int32, 10)
	tree.Service("steady", func(ctx context.Context) error { up <- steady.Add(1); <-ctx.Done(); return nil })
	wait(t, up, "the neighbour's start")
	for want := 1; want <= 3; want++ {
		if got := wait(t, runs, "a restart"); got != want {
			t.Fatalf("run %d came, want %d", got, want)
		}
	}
	health := tree.Health()
	if len(health) != 1 || health[0].Service != "frail" || health[0].Failures != 2 {
		t.Errorf("the health is %+v", health)
	}
	var p *supervise.PanicError
	if !errors.As(health[0].Err, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "supervise_test") {
		t.Errorf("the failure is %v", health[0].Err)
	}
	if steady.Load() != 1 {
		t.Errorf("the neighbour was started %d times", steady.Load())
	}
}

// TestEscalation shows that a service that keeps failing is escalated once and not restarted.
func TestEscalation(t *testing.T) {
	var h told
	escalated := make(chan error, 10)
	tree := supervise.New(t.Context(), options(&h, escalated))
	cause := errors.New("broken for good")
	tree.Service("frail", func(context.Context) error { return cause })
	if err := wait(t, escalated, "the escalation"); !errors.Is(err, cause) || !strings.Contains(err.Error(), "frail failed 4 times in a row") {
		t.Errorf("escalated as %v", err)
	}
	tree.Close()
	if h.count() != 4 {
		t.Errorf("%d failures were told, want 4", h.count())
	}
	if last := h.list[3]; last.Again || last.InRow != 4 {
		t.Errorf("the last failure is %+v", last)
	}
	select {
	case err := <-escalated:
		t.Errorf("escalated again: %v", err)
	default:
	}
}

// TestWhatPassesIsNotEscalated shows that a failure that passes by itself is retried without limit.
func TestWhatPassesIsNotEscalated(t *testing.T) {
	var h told
	full := errors.New("disk full")
	o := options(&h, make(chan error, 1))
	o.Passes = func(err error) bool { return errors.Is(err, full) }
	o.Escalate = func(err error) { t.Errorf("escalated: %v", err) }
	tree := supervise.New(t.Context(), o)
	defer tree.Close()
	var n atomic.Int32
	done := make(chan struct{})
	tree.Service("writer", func(ctx context.Context) error {
		if n.Add(1) <= 12 {
			return full
		}
		close(done)
		return nil
	})
	wait(t, done, "the thirteenth start")
}

// TestCloseWaits shows that Close waits for services that end slowly, and that nothing starts after
// it.
func TestCloseWaits(t *testing.T) {
	var h told
	tree := supervise.New(t.Context(), options(&h, make(chan error, 1)))
	started, ending, let := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	tree.Service("slow", func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		close(ending)
		<-let
		ended.Store(true)
		return nil
	})
	begun := make(chan struct{})
	tree.Task("once", func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return errors.New("only because it ended")
	})
	wait(t, begun, "the task")
	wait(t, started, "the service")
	closed := make(chan struct{})
	go func() { tree.Close(); close(closed) }()
	wait(t, ending, "the end of the service's context")
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	close(let)
	wait(t, closed, "Close")
	if !ended.Load() {
		t.Error("Close returned before the service had")
	}
	tree.Service("late", func(context.Context) error { t.Error("started after Close"); return nil })
	tree.Task("late", func(context.Context) error { t.Error("started after Close"); return nil })
	if h.count() != 0 {
		t.Errorf("told of %+v", h.list)
	}
}

// TestATaskThatPanics shows that the panic of a task is reported and ends nothing else.
func TestATaskThatPanics(t *testing.T) {
	var h told
	tree := supervise.New(t.Context(), options(&h, make(chan error, 1)))
	tree.Task("once", func(context.Context) error { panic("boom") })
	wait(t, h.grew, "the failure")
	tree.Close()
	if h.count() != 1 || h.list[0].Again || h.list[0].Service != "once" {
		t.Errorf("told of %+v", h.list)
	}
}
