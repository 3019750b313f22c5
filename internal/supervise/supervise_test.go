package supervise_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/supervise"
)

// told collects what was reported.
type told struct {
	mu   sync.Mutex
	list []supervise.Report
	grew chan struct{}
}

func (h *told) hear(_ context.Context, f supervise.Report) {
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
	return supervise.Options{Name: "test", Limit: 4, SteadyAfter: time.Hour, Backoff: time.Millisecond, Most: 20 * time.Millisecond, Report: h.hear, Escalate: func(err error) { escalated <- err }}
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
	tree.Add(supervise.Part{Name: "frail", Run: func(ctx context.Context) error {
		i := int(n.Add(1))
		runs <- i
		if i < 3 {
			panic("boom")
		}
		<-ctx.Done()
		return nil
	}})
	var steady atomic.Int32
	up := make(chan int32, 10)
	tree.Add(supervise.Part{Name: "steady", Run: func(ctx context.Context) error { up <- steady.Add(1); <-ctx.Done(); return nil }})
	wait(t, up, "the neighbour's start")
	for want := 1; want <= 3; want++ {
		if got := wait(t, runs, "a restart"); got != want {
			t.Fatalf("run %d came, want %d", got, want)
		}
	}
	health := tree.Health()
	if len(health) != 2 || health[0].Name != "frail" || health[0].State != supervise.Running || health[0].Restarts != 2 || health[1].Err != nil {
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
	tree.Add(supervise.Part{Name: "frail", Run: func(context.Context) error { return cause }})
	if err := wait(t, escalated, "the escalation"); !errors.Is(err, cause) || !strings.Contains(err.Error(), "frail failed 4 times within 10m0s") {
		t.Errorf("escalated as %v", err)
	}
	tree.Close()
	if h.count() != 4 {
		t.Errorf("%d failures were told, want 4", h.count())
	}
	if last := h.list[3]; last.Kind != supervise.GaveUp || last.Failures != 4 || !h.list[0].First() || h.list[1].First() {
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
	tree.Add(supervise.Part{Name: "writer", Run: func(ctx context.Context) error {
		if n.Add(1) <= 12 {
			return full
		}
		close(done)
		return nil
	}})
	wait(t, done, "the thirteenth start")
}

// TestCloseWaits shows that Close waits for services that end slowly, and that nothing starts after
// it.
func TestCloseWaits(t *testing.T) {
	var h told
	tree := supervise.New(t.Context(), options(&h, make(chan error, 1)))
	started, ending, let := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	tree.Add(supervise.Part{Name: "slow", Run: func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		close(ending)
		<-let
		ended.Store(true)
		return nil
	}})
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
	tree.Add(supervise.Part{Name: "late", Run: func(context.Context) error { t.Error("started after Close"); return nil }})
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
	if h.count() != 1 || !h.list[0].Once || h.list[0].Part != "once" {
		t.Errorf("told of %+v", h.list)
	}
}

// TestWhatIsGivenUpCanBeStartedAgain shows that an optional part that fails too often ends nothing
// else, is said to have failed, and starts again when somebody wants it or its cause is mended.
func TestWhatIsGivenUpCanBeStartedAgain(t *testing.T) {
	for _, by := range []string{"somebody", "a mended cause", "time"} {
		t.Run(by, func(t *testing.T) {
			var h told
			o := options(&h, make(chan error, 1))
			o.Escalate = func(err error) { t.Errorf("escalated: %v", err) }
			tree := supervise.New(t.Context(), o)
			defer tree.Close()
			var n atomic.Int32
			up, given, mended := make(chan struct{}), make(chan error, 1), make(chan struct{})
			p := supervise.Part{Name: "frail", Optional: true, GaveUp: func(err error) { given <- err }, Run: func(ctx context.Context) error {
				if n.Add(1) <= 4 {
					return errors.New("broken")
				}
				close(up)
				<-ctx.Done()
				return nil
			}}
			switch by {
			case "a mended cause":
				p.Mended = func(ctx context.Context) {
					select {
					case <-mended:
					case <-ctx.Done():
					}
				}
			case "time":
				p.Rest = time.Millisecond
			}
			tree.Add(p)
			wait(t, given, "giving up")
			if by != "time" {
				if got := tree.Health()[0]; got.State != supervise.GivenUp || got.Reason != "broken" || n.Load() != 4 {
					t.Errorf("after %d runs it is %+v", n.Load(), got)
				}
			}
			if by == "somebody" {
				tree.Again()
			}
			close(mended)
			wait(t, up, "its next run")
		})
	}
}

// TestPausesGrow shows that each further failure is followed by a pause twice as long, up to a
// bound.
func TestPausesGrow(t *testing.T) {
	var h told
	escalated := make(chan error, 1)
	o := options(&h, escalated)
	o.Limit, o.Most = 6, 5*time.Millisecond
	tree := supervise.New(t.Context(), o)
	tree.Add(supervise.Part{Name: "frail", Run: func(context.Context) error { return errors.New("broken") }})
	wait(t, escalated, "the escalation")
	tree.Close()
	var pauses []time.Duration
	for _, r := range h.list {
		pauses = append(pauses, r.Next)
	}
	const ms = time.Millisecond
	if want := []time.Duration{ms, 2 * ms, 4 * ms, 5 * ms, 5 * ms, 0}; !slices.Equal(pauses, want) {
		t.Errorf("the pauses are %v, want %v", pauses, want)
	}
}

// TestOneThatRunsSteadilyIsReported shows that a part that ran for a while after failures is
// reported once, and that its next failure is the first of a new row, which still counts towards
// the limit.
func TestOneThatRunsSteadilyIsReported(t *testing.T) {
	var h told
	o := options(&h, make(chan error, 1))
	o.SteadyAfter = time.Millisecond
	escalated := make(chan error, 1)
	o.Limit, o.Escalate = 3, func(err error) { escalated <- err }
	tree := supervise.New(t.Context(), o)
	steady := make(chan struct{})
	var n atomic.Int32
	tree.Add(supervise.Part{Name: "frail", Run: func(ctx context.Context) error {
		if n.Add(1) == 2 {
			wait(t, steady, "the report")
		}
		return errors.New("broken")
	}})
	for {
		wait(t, h.grew, "a report")
		h.mu.Lock()
		i := slices.IndexFunc(h.list, func(r supervise.Report) bool { return r.Kind == supervise.Restarted })
		h.mu.Unlock()
		if i == 1 {
			break
		}
	}
	close(steady)
	wait(t, escalated, "the escalation")
	tree.Close()
	if h.list[1].Failures != 1 || h.list[2].Kind != supervise.Failed || !h.list[2].First() || n.Load() != 3 {
		t.Errorf("told of %+v after %d runs", h.list, n.Load())
	}
}

// TestATreeUnderAnother shows that what is given up in one tree ends nothing of the tree above it or
// of one beside it, and that a tree that was stopped still lets those under it be closed.
func TestATreeUnderAnother(t *testing.T) {
	var h told
	above := supervise.New(t.Context(), supervise.Options{Name: "above"})
	o := options(&h, make(chan error, 1))
	o.Under, o.Escalate = above, nil
	escalated := make(chan error, 1)
	o.Escalate = func(err error) { escalated <- err }
	fails, beside := supervise.New(t.Context(), o), supervise.New(t.Context(), supervise.Options{Name: "beside", Under: above})
	up := make(chan struct{}, 2)
	runs := func(ctx context.Context) error { up <- struct{}{}; <-ctx.Done(); return nil }
	above.Add(supervise.Part{Name: "part", Run: runs})
	beside.Add(supervise.Part{Name: "part", Run: runs})
	wait(t, up, "one")
	wait(t, up, "the other")
	fails.Add(supervise.Part{Name: "frail", Run: func(context.Context) error { panic("boom") }})
	wait(t, escalated, "the escalation")
	fails.Close()
	for _, tree := range []*supervise.Tree{above, beside} {
		if got := tree.Health(); len(got) != 1 || got[0].State != supervise.Running || got[0].Restarts != 0 || tree.Context().Err() != nil {
			t.Errorf("its neighbour suffers: %+v", got)
		}
	}
	above.Stop()
	late := supervise.New(t.Context(), supervise.Options{Name: "late", Under: above})
	for _, tree := range []*supervise.Tree{late, beside, above} {
		tree.Close()
	}
}
