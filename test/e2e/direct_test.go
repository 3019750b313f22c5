package e2e_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/modelserver"
)

// TestASmallPromptNeedsOneLoop shows through the binary that a small prompt costs the requests of one Associate and none of
// a Director, and is verified and reported as ever; that what nothing checks is not called verified; that what fails its
// checks goes to a Director, with what was kept, and is done only when that passes; and that its user decides with --plan.
func TestASmallPromptNeedsOneLoop(t *testing.T) {
	t.Parallel()
	edit := func(old, now string) modelserver.Turn {
		return modelserver.Turn{Calls: call("edit", object{"path": "workspace/sum/sum.js", "old": old, "new": now})}
	}
	takeOver := delegate(object{"base": "{{kept}}", "kind": "agent", "goal": "Go on with what was kept.", "tools": []any{"read", "edit", "write", "bash"}, "verify": object{"profile": "standard"}})
	takeOver.Match, takeOver.Capture = "## The task before any plan", map[string]string{"kept": `kept, not published: ([0-9a-f]{40})`}
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		turnsOf("associate", "make the sum right", edit("a - b", "a + b"), finish("ok", "add adds now")),
		turnsOf("associate", "write a note", modelserver.Turn{Calls: call("write", object{"path": "artifacts/note.md", "content": "hello\n"})}, finish("ok", "It is written.")),
		turnsOf("associate", "turn the sum around", edit("a + b", "b * a"), finish("ok", "I am sure that it passes.")),
		turnsOf("director", "turn the sum around", takeOver, report("done", "It is turned around.")),
		turnsOf("associate", "Go on with what was kept", edit("b * a", "b + a"), finish("ok", "add adds again")),
		turnsOf("director", "plan this", report("done", "Planned.")),
	)}, "CHOIR_LOOPS_DIRECT_WORDS=30", "CHOIR_LOOPS_REPAIRS=0")
	in.Must(t, "add", makeFixture(t))
	asked := 0
	cost := func(what string, want int) {
		t.Helper()
		n := len(s.Requests())
		if n-asked != want {
			t.Errorf("%s took %d requests of a model; want %d (turns left: %v)", what, n-asked, want, s.Left())
		}
		asked = n
	}

	p := prompt(t, in, "make the sum right")
	if p.Status != "done" || p.Verified != "pass" || p.code != 0 || len(p.Tasks) != 1 || !strings.Contains(p.Summary, "add adds now") || !strings.Contains(p.Summary, "Changed: workspace/sum/sum.js") {
		t.Fatalf("%+v", p)
	}
	cost("a small prompt", 2)
	run := runOf(t, in, p.Run)
	if !strings.Contains(run.Direct, "words: 4 of at most 30") {
		t.Errorf("the run went to one Associate because %q", run.Direct)
	}
	if got := in.Must(t, "runs", p.Run); !strings.Contains(got, "to one Associate at once") {
		t.Errorf("choir runs says\n%s", got)
	}
	if got := in.Must(t, "documents", "show", p.Document); !strings.Contains(got, "It went to one Associate at once") {
		t.Errorf("its document says\n%s", got)
	}

	p = prompt(t, in, "write a note")
	if p.Status != "done" || p.Verified != "unknown" || !strings.Contains(p.Summary, "is not verified: no check was found") {
		t.Errorf("what nothing checks: %+v", p)
	}
	cost("a note", 2)

	p = prompt(t, in, "turn the sum around")
	if p.Status != "done" || p.Verified != "pass" || len(p.Tasks) != 2 || p.Tasks[0].Status != "failed" || p.Tasks[1].Verification != "pass" || !strings.HasPrefix(p.Summary, "It is turned around.") {
		t.Errorf("a Director takes over: %+v", p)
	}
	cost("a prompt that a Director took over", 6)
	said := false
	for _, e := range eventsOf(t, in, "run.moved") {
		moved := data[contract.RunMoved](t, e)
		said = said || e.Run == p.Run && strings.Contains(moved.Reason, "a Director takes it over: its Associate's task ended as failed: Verification failed")
	}
	if !said {
		t.Error("no event says that a Director took it over")
	}
	if got := in.Must(t, "files", "cat", "workspace/sum/sum.js"); !strings.Contains(got, "b + a") {
		t.Errorf("live: %q", got)
	}

	p = continueRun(t, in, "--plan", "plan this")
	if p.Status != "done" || len(p.Tasks) != 0 || runOf(t, in, p.Run).Direct != "" {
		t.Errorf("--plan: %+v", p)
	}
	cost("a prompt that is to be planned", 1)
	if r, err := in.Run(t.Context(), "prompt", "--plan", "--direct", "both"); err != nil || r.Code != 2 || !strings.Contains(r.Stderr, "exclude each other") {
		t.Errorf("both: %+v, %v", r, err)
	}
	usable(t, in)
}
