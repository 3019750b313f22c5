package dispatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestOverlaysWhoseRemovalNobodyLivedToDoAreSweptAtAStart shows that a start removes the overlays
// of ended attempts that an earlier process did not live to remove, which a run may leave even when
// it has its report, and a task when it has its next attempt. The overlay of an attempt that is
// under way stays.
func TestOverlaysWhoseRemovalNobodyLivedToDoAreSweptAtAStart(t *testing.T) {
	h := newHouse(t)
	h.ws.drop = func() { panic("the process died") }
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	if rep := h.report(h.submit("make it say two")); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	eventually(t, func() bool { return !h.d.Busy() })
	left := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(h.ws.dir, "boxes"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := left(); len(got) != 1 {
		t.Fatalf("a removal that came to nothing leaves %q", got)
	}
	h.ws.drop = nil
	h.restart()
	if got := left(); len(got) != 0 {
		t.Errorf("of a run that has ended there are %q", got)
	}

	// One attempt has failed, and the one that follows it is under way.
	flag := filepath.Join(h.dir, "second")
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
		{"run": m{"argv": []string{"sh", "-c", "test -e " + flag + " || sleep 1000"}}}}})
	run := h.submit("go")
	running := func(p contract.Payload) bool { return p.(*contract.ToolCalled).Name == "run" }
	h.told(run, "tool.called", running)
	h.ws.mu.Lock()
	task := left()[0]
	h.ws.mu.Unlock()
	earlier := strings.TrimSuffix(task, "-1") + "-7" // it belongs to no attempt that is known
	if err := os.Mkdir(filepath.Join(h.ws.dir, "boxes", earlier), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.sleep()
	h.wake()
	var kept []ports.TaskRef
	h.ws.swept = func(but []ports.TaskRef) { kept = but }
	if err := h.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || kept[0].Run != run || kept[0].Task+"-1" != task || kept[0].Attempt != 1 {
		t.Errorf("kept are %+v; under way is %s", kept, task)
	}
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if got := left(); len(got) != 0 {
		t.Errorf("there are %q", got)
	}
}

// TestWhatTasksLeaveDoesNotPileUp: while the removal of an overlay is slow, no more tasks make
// theirs than may be at work at once.
func TestWhatTasksLeaveDoesNotPileUp(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Parallel = 1 }
	h.sleep()
	h.wake()
	two := make(chan struct{})
	release := sync.OnceFunc(func() { close(two) })
	defer release()
	var most atomic.Int32
	h.ws.drop = func() {
		there, err := os.ReadDir(filepath.Join(h.ws.dir, "boxes"))
		if err != nil {
			t.Error(err)
		}
		most.Store(max(most.Load(), int32(len(there))))
		<-two
	}
	var tasks []m
	for i := range 4 {
		tasks = append(tasks, m{"kind": "exec", "goal": fmt.Sprint("step ", i), "steps": []m{{"write": m{"path": fmt.Sprintf("workspace/%d.txt", i), "content": "x\n"}}}})
	}
	h.model.director = plan(tasks...)
	run := h.submit("do four things")
	eventually(t, func() bool { n := len(h.results()); return n == 2 && h.d.Full() || n == len(tasks) })
	release()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Errorf("%+v", rep)
	}
	h.quiet()
	if h.ws.dropped != 4 || most.Load() > 2 {
		t.Errorf("%d overlays were removed; there were %d at once", h.ws.dropped, most.Load())
	}
}
