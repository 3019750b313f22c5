package e2e_test

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/modelserver"
)

// TestAnOutageIsWaitedFor: a task whose model can't be had for a while goes on where it was, in the same attempt, and the run says
// that it waits and for what.
func TestAnOutageIsWaitedFor(t *testing.T) {
	t.Parallel()
	down := modelserver.Turn{Text: "overloaded", Fault: &modelserver.Fault{Kind: "status", Status: 529}}
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "write a note", "tools": []any{"write"}, "verify": object{"profile": "none"}}), report("done", "Noted.")),
		worker(modelserver.Turn{Calls: call("write", object{"path": "workspace/note.txt", "content": "kept\n"})}, down, down, down, down,
			modelserver.Turn{Calls: call("finish", object{"status": "ok", "summary": "The note is there."})}))},
		"CHOIR_MODELS_PATIENCE_S=120")
	p := prompt(t, in, "write a note")
	if p.code != 0 || p.Status != "done" || len(p.Tasks) != 1 {
		t.Fatalf("%+v (turns left: %v)", p, s.Left())
	}
	if started := eventsOf(t, in, "task.started"); len(started) != 1 {
		t.Errorf("the task was started %d times", len(started))
	}
	if got := in.Must(t, "files", "cat", "workspace/note.txt"); got != "kept\n" {
		t.Errorf("the note is %q", got)
	}
	waiting := eventsOf(t, in, "model.waiting")
	if len(waiting) == 0 {
		t.Fatal("nobody was told that the model is waited for")
	}
	if w := data[contract.ModelWaiting](t, waiting[0]); w.Role != "associate" || w.Code == "" || w.Message == "" || w.Until == "" {
		t.Errorf("told: %+v", w)
	}
	if r := eventsOf(t, in, "model.resumed"); len(r) != 1 || data[contract.ModelResumed](t, r[0]).Outcome != contract.WaitAnswered {
		t.Errorf("resumed: %+v", r)
	}
	var statuses []contract.RunStatus
	for _, e := range eventsOf(t, in, "run.moved") {
		statuses = append(statuses, data[contract.RunMoved](t, e).Status)
	}
	if !slices.Contains(statuses, contract.RunWaiting) {
		t.Errorf("the run was %v", statuses)
	}
}
