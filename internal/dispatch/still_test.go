package dispatch_test

import (
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
