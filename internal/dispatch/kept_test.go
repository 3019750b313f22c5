package dispatch_test

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/dispatch"
)

// keptTask is an agent's task whose tree is kept for inspection when it fails.
func keptTask() m {
	task := maps.Clone(agentTask)
	task["on_failure"] = "keep"
	return task
}

// TestATreeIsKeptBeforeItsResultIsLogged shows that the tree of a failed task is kept before its
// result is logged, and that keeping it is tried again. If the process died after the result was
// logged, the next start would sweep the overlay, and the tree could no longer be kept.
func TestATreeIsKeptBeforeItsResultIsLogged(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(keptTask())
	h.model.associate = steps(blue, broken)
	var tries atomic.Int32
	h.ws.keep = func() error {
		if n := len(h.results()); n != 0 {
			t.Errorf("the log has %d results before the tree is kept", n)
		}
		if tries.Add(1) < 3 {
			return errors.New("the disk is full")
		}
		return nil
	}
	h.report(h.submit("go"))
	h.quiet()
	if got := h.ws.kept(); got != 1 || tries.Load() != 3 {
		t.Errorf("%d trees are kept, after %d tries", got, tries.Load())
	}
	if res := h.results(); len(res) != 1 || strings.Contains(res[0].Summary, "could not be kept") {
		t.Errorf("the results are %+v", res)
	}
}

// TestWhatCantBeKeptIsSaid shows that a result says so when the tree could not be kept before the
// time for it was over.
func TestWhatCantBeKeptIsSaid(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Times.TakeBack = time.Millisecond }
	h.sleep()
	h.wake()
	h.model.director = plan(keptTask())
	h.model.associate = steps(blue, broken)
	h.ws.keep = func() error { return errors.New("the disk is full") }
	h.report(h.submit("go"))
	h.quiet()
	if res := h.results(); len(res) != 1 || !strings.Contains(res[0].Summary, "What it wrote could not be kept: the disk is full.") {
		t.Errorf("the results are %+v", res)
	}
}
