package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

func TestADyingTaskBoxIsResumedThenGivenUp(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	var mu sync.Mutex
	deaths := 0
	h.model.gate = func(role contract.ActorKind, n int) {
		if role != contract.KindAssociate || n != 1 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if deaths++; deaths > 1 {
			return
		}
		h.boxes.mu.Lock()
		var doomed *box
		for id, b := range h.boxes.open {
			if strings.HasPrefix(id, "a-") {
				doomed = b
			}
		}
		h.boxes.mu.Unlock()
		doomed.Kill()
	}
	h.model.associate = steps(edit("c1"), use("c2", "bash", m{"command": "true"}))
	rep := h.report(h.submit("go"))
	if rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if n := len(h.events("task.started")); n != 2 {
		t.Errorf("started %d times", n)
	}
	edits := 0
	for _, p := range h.events("tool.called") {
		if p.(*contract.ToolCalled).Name == "edit" {
			edits++
		}
	}
	if edits != 1 {
		t.Errorf("the edit was made %d times", edits)
	}
}

// When a task's box dies during a call, the attempt continues in another box, and the model
// is told that the call's outcome is not known.
func TestATaskBoxThatDiesUnderACallIsReplaced(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	var told atomic.Bool
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(edit("c1"))
		case 1:
			return parts(use("c2", "bash", m{"command": "touch began; sleep 1000"}))
		default:
			for _, p := range req.Messages[len(req.Messages)-1].Parts {
				if p.Return != nil && strings.HasPrefix(p.Return.Content, "Unknown: ") {
					told.Store(true)
				}
			}
			return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
		}
	}
	run := h.submit("go")
	h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Name == "bash" })
	h.boxes.mu.Lock()
	for id, b := range h.boxes.open {
		if strings.HasPrefix(id, "t-") {
			go b.Kill()
		}
	}
	h.boxes.mu.Unlock()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if res := h.results(); len(res) != 1 || res[0].Attempt != 1 || !told.Load() {
		t.Errorf("the model was told: %v; results %+v", told.Load(), res)
	}
	if n := len(h.events("task.started")); n != 2 {
		t.Errorf("started %d times", n)
	}
}

// slowLog calls before for each append, and stores the drafts even if the caller has gone.
type slowLog struct {
	ports.Log
	before func(drafts []contract.Draft)
}

func (l *slowLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.before(drafts)
	events, err := l.Log.Append(context.WithoutCancel(ctx), drafts...)
	if err == nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return events, err
}

// A prompt whose sender disconnects while it is being stored gets its run.
func TestAPromptOutlivesItsSender(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	ctx, hangUp := context.WithCancel(t.Context())
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { return &slowLog{real, func([]contract.Draft) { hangUp() }} }
	h.wake()
	id := contract.NewID()
	if _, _, err := h.d.Submit(ctx, dispatch.Prompt{ID: id, By: contract.Person("u"), Text: "go"}); err != nil {
		t.Logf("the sender is told: %v", err)
	}
	if rep := h.report(contract.DeriveID(id, "run")); rep.Status != contract.RunDone {
		t.Errorf("%+v", rep)
	}
	h.quiet()
}

// A prompt whose append returned an error although it was stored, as when a disk was full
// for a moment, gets only one run when it is sent again.
func TestAPromptSentAgainHasOneRun(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	l := &lossyLog{}
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.wake()
	p := dispatch.Prompt{ID: contract.NewID(), By: contract.Person("u"), Text: "go"}
	if _, _, err := h.d.Submit(t.Context(), p); err == nil {
		t.Fatal("the error was not told")
	}
	for range 3 {
		if _, _, err := h.d.Submit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if rep := h.report(contract.DeriveID(p.ID, "run")); rep.Status != contract.RunDone {
		t.Errorf("%+v", rep)
	}
	h.quiet()
	if _, _, err := h.d.Submit(t.Context(), p); err != nil || h.d.Busy() {
		t.Errorf("a run that has ended begins again: %v", err)
	}
	if n := len(h.events("run.reported")); n != 1 {
		t.Errorf("%d reports", n)
	}
}

// lossyLog loses the answer to its first append.
type lossyLog struct {
	ports.Log
	once sync.Once
}

func (l *lossyLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	events, err := l.Log.Append(ctx, drafts...)
	l.once.Do(func() { events, err = nil, errors.New("the outcome is unknown") })
	return events, err
}

// When a Director dies while its delegation is being stored, the tasks belong to the run,
// and the next Director begins when they have ended.
func TestADelegationOutlivesItsDirector(t *testing.T) {
	h := newHouse(t)
	asked := 0
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 { // a model that is asked again says it otherwise
			asked++
			return parts(use(fmt.Sprint("d", asked), "delegate", m{"tasks": []m{agentTask}}))
		}
		return plan()(n, req)
	}
	h.model.associate = steps(edit("c1"))
	var once sync.Once
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log {
		return &slowLog{real, func(drafts []contract.Draft) {
			if drafts[0].Type != "task.requested" {
				return
			}
			once.Do(func() {
				h.boxes.mu.Lock()
				var doomed *box
				for id, b := range h.boxes.open {
					if strings.HasPrefix(id, "d-") {
						doomed = b
					}
				}
				h.boxes.mu.Unlock()
				doomed.mu.Lock()
				request := doomed.latest
				doomed.mu.Unlock()
				doomed.Kill()
				<-request.Done()
			})
		}}
	}
	h.wake()
	rep := h.report(h.submit("go"))
	h.quiet()
	if res := h.results(); rep.Status != contract.RunDone || len(res) != 1 || res[0].Status != contract.ResultOK {
		t.Errorf("%+v, results %+v\n%s", rep, res, h.story())
	}
	if all := must(h.log.Read(t.Context(), 0, 1000)); all[len(all)-1].Type != "run.reported" {
		t.Errorf("the run went on after its report:\n%s", h.story())
	}
}

// leaving is a workspace whose keeper is away at the first merges.
type leaving struct {
	ports.Workspace
	left   atomic.Int32 // how many merges find it away
	merges atomic.Int32
}

func (w *leaving) Merge(ctx context.Context, o ports.Overlay, took ports.Took) (ports.Merged, error) {
	w.merges.Add(1)
	if w.left.Add(-1) >= 0 {
		return ports.Merged{}, fault.New("merge", fault.Unavailable, "", syscall.EPIPE)
	}
	return w.Workspace.Merge(ctx, o, took)
}

// TestAKeeperThatRestartsAtTheMergeLosesNoWork shows that a loop that has finished is not made to work again because the
// keeper was away for a moment when its tree was to be merged.
func TestAKeeperThatRestartsAtTheMergeLosesNoWork(t *testing.T) {
	h := newHouse(t)
	h.model.director, h.model.associate = plan(agentTask), steps(edit("c1"))
	var w *leaving
	h.tune = func(o *dispatch.Options) {
		w = &leaving{Workspace: o.Workspace}
		w.left.Store(3)
		o.Workspace = w
	}
	h.sleep()
	h.wake()
	rep := h.report(h.submit("go"))
	h.quiet()
	res := h.results()
	if rep.Status != contract.RunDone || len(res) != 1 || res[0].Attempt != 1 || w.merges.Load() != 4 {
		t.Errorf("after %d merges the report is %+v, the results are %+v", w.merges.Load(), rep, res)
	}
	if n := len(h.events("task.started")); n != 1 {
		t.Errorf("its loop was started %d times", n)
	}
}
