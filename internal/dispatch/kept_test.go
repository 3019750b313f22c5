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

// keptTask is an agent's task whose tree is kept for a look when it fails.
func keptTask() m {
	task := maps.Clone(agentTask)
	task["on_failure"] = "keep"
	return task
}

// TestATreeIsKeptBeforeItsResultIsLogged: a death behind the result has the overlay swept
// by the next start, so what is to be looked at is kept before, and tried again.
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
	if got := len(h.ws.kept()); got != 1 || tries.Load() != 3 {
		t.Errorf("%d trees are kept, after %d tries", got, tries.Load())
	}
	if res := h.results(); len(res) != 1 || strings.Contains(res[0].Summary, "could not be kept") {
		t.Errorf("the results are %+v", res)
	}
}

// TestWhatCantBeKeptIsSaid: in the result, once its time is over.
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
	if res := h.results(); len(res) != 1 || !strings.Contains(res[0].Summary, "What it wrote could not be kept for a look: the disk is full.") {
		t.Errorf("the results are %+v", res)
	}
}
