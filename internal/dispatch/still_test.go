package dispatch_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/view"
)

// The runs of a computer that was off for an hour have not used up their time by that.
func TestARunsClockStandsWhileNobodyDrivesIt(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("c", "bash", m{"command": "sleep 1000"}))
		}
		return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
	}
	run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go", Budget: contract.Budget{WallS: 60}})
	if err != nil {
		t.Fatal(err)
	}
	h.told(run, "tool.called", nil)
	h.tune = func(o *dispatch.Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } }
	h.restart()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Errorf("%s: %s", rep.Status, rep.Summary)
	}
}

// TestATasksClockGoesOnOverRestarts shows that a task which works five seconds between one restart and the next is
// stopped when it has worked as long as it may, as one whose box is lost within one process is, and that its result
// says how long it worked.
func TestATasksClockGoesOnOverRestarts(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "agent", "goal": "g", "tools": []string{"bash"}, "budget": m{"wall_s": 12, "tool_calls": 0, "tokens": 0, "cost_usd": 0}})
	h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
		h.ahead.Add(int64(5 * time.Second))
		if n > 3 {
			return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
		}
		return parts(use(fmt.Sprint("b", n), "bash", m{"command": fmt.Sprint("echo ", n)}))
	}
	var restarts atomic.Int32
	h.model.gate = func(role contract.ActorKind, turn int) {
		if role == contract.KindAssociate && turn > int(restarts.Load()) {
			<-t.Context().Done() // it is for the next process
		}
	}
	run := h.submitWithin(contract.Budget{WallS: 3000})
	for n := range 3 {
		h.told(run, "tool.returned", func(p contract.Payload) bool { return p.(*contract.ToolReturned).Call == fmt.Sprint("b", n) })
		h.d.Close() // before the next turn may be made
		restarts.Add(1)
		h.restart()
	}
	h.report(run)
	h.quiet()
	res := h.results()
	if len(res) != 1 || res[0].Status != contract.ResultFailed || !strings.Contains(res[0].Summary, "its budget of 12 seconds is used up") || res[0].Usage.WallMS < 12_000 {
		t.Errorf("%+v", res)
	}
}

// TestARunThatIsTakenUpHasNoMoreTime shows that the time which a run had used before a restart counts while the
// tasks that were under way go on, too.
func TestARunThatIsTakenUpHasNoMoreTime(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"run": m{"argv": []string{"sleep", "1000"}}}}})
	run := h.submitWithin(contract.Budget{WallS: 12})
	h.told(run, "tool.called", nil)
	h.ahead.Add(int64(20 * time.Second))
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Are you there?"); err != nil {
		t.Fatal(err)
	}
	h.restart()
	rep := h.report(run)
	h.quiet()
	res := h.results()
	if last := res[len(res)-1]; rep.Status != contract.RunFailed || !strings.Contains(last.Summary, "the run's budget of 12 seconds is used up") {
		t.Errorf("%s: %s; the task: %+v", rep.Status, rep.Summary, last)
	}
}

// A loop that reports that it was cancelled, although nobody cancelled it, is replaced by
// another.
func TestALoopThatNobodyCancelledGoesOn(t *testing.T) {
	h := newHouse(t)
	var directors, associates atomic.Int32
	h.model.director = plan(agentTask)
	h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
		return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
	}
	h.boxes.evil = func(host *http.Client) http.Handler {
		if associates.Add(1) == 1 {
			return says(`{"end":{"status":"cancelled","summary":"The task was cancelled."}}`)
		}
		return associate.Handler(associate.Options{Client: host})
	}
	h.boxes.break_ = func(r ports.BoxRequest) error {
		if r.Kind == contract.BoxDirector {
			h.boxes.liar = nil
			if directors.Add(1) == 1 {
				h.boxes.liar = says(`{"end":{"status":"cancelled","summary":"The run was cancelled."}}`)
			}
		}
		return nil
	}
	rep := h.report(h.submit("go"))
	if rep.Status != contract.RunDone || directors.Load() != 2 || associates.Load() != 2 {
		t.Errorf("%s after %d Directors and %d Associates: %s", rep.Status, directors.Load(), associates.Load(), rep.Summary)
	}
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultOK {
		t.Errorf("%+v", res)
	}
}

func says(line string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, line+"\n") })
}

// The result of a cancelled task says who cancelled it.
func TestWhatIsCancelledSaysByWhom(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = func(int, contract.TurnRequest) []contract.Part {
		return parts(use("c", "bash", m{"command": "sleep 1000"}))
	}
	works := func(run string) {
		h.told(run, "tool.called", nil)
	}
	run := h.submit("go")
	works(run)
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunCancelled || !strings.Contains(rep.Summary, "cancelled by the user") {
		t.Errorf("%s: %s", rep.Status, rep.Summary)
	}
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultCancelled || !strings.Contains(res[0].Summary, "cancelled by the user") {
		t.Errorf("%+v", res)
	}
	run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go", Budget: contract.Budget{WallS: 2}})
	if err != nil {
		t.Fatal(err)
	}
	works(run)
	if rep := h.report(run); rep.Status != contract.RunFailed {
		t.Errorf("%s: %s", rep.Status, rep.Summary)
	}
	if res := h.results(); len(res) != 2 || !strings.Contains(res[1].Summary, "budget of 2 seconds") || strings.Contains(res[1].Summary, "by the user") {
		t.Errorf("%+v", res)
	}
}

// A task that leaves only files that no tree can hold has changed nothing, and what it left
// is recorded only in its result.
func TestWhatNoTreeCanHoldIsSaidThoughNothingWasChanged(t *testing.T) {
	h := newHouse(t)
	h.ws.leaves = []view.Kept{{Path: "workspace/film.mp4", Reason: "is larger than a checkpoint takes"}}
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "read", m{"path": "workspace/a.sh"}))
	run := h.submit("go")
	rep := h.report(run)
	h.quiet()
	res := h.results()
	if len(res) != 1 || len(res[0].Verification.Said) != 1 {
		t.Fatalf("%+v", res)
	}
	for what, text := range map[string]string{"result": res[0].Summary, "verification": res[0].Verification.Said[0], "report": rep.Summary,
		"document": must(h.docs.Get(t.Context(), rep.Document)).Body} {
		if !strings.Contains(text, "workspace/film.mp4") || !strings.Contains(text, "nor in any checkpoint") {
			t.Errorf("the %s does not say it: %s", what, text)
		}
	}
}
