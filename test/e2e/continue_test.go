package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// continueRun submits a prompt that continues a run, and waits for its own.
func continueRun(t *testing.T, in *choirtest.Instance, args ...string) (p prompted) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := in.Run(ctx, append([]string{"prompt", "--wait", "--timeout", "100s", "--json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
		t.Fatalf("prompt %q printed no JSON (code %d, %s): %v", args, r.Code, r.Stderr, err)
	}
	p.code, p.stderr = r.Code, r.Stderr
	return p
}

// TestAFollowUpGoesOnFromWhatWasKept shows through the binary that the work of a task which failed its checks is
// kept, is not live, and is what a follow-up goes on from, which then is verified and published; and that a
// kept tree in which the test was weakened is judged by the test as it was.
func TestAFollowUpGoesOnFromWhatWasKept(t *testing.T) {
	t.Parallel()
	const path = "workspace/sum/sum.js"
	task := func(goal, base string) modelserver.Turn {
		turn := object{"kind": "agent", "goal": goal, "tools": []any{"read", "edit", "write", "bash"}, "verify": object{"profile": "standard"}}
		if base != "" {
			turn["base"] = base
		}
		return delegate(turn)
	}
	edit := func(file, old, now string) modelserver.Turn {
		return modelserver.Turn{Calls: call("edit", object{"path": "workspace/sum/" + file, "old": old, "new": now})}
	}
	goOn := task("Go on with what was kept.", "{{kept}}")
	goOn.Match, goOn.Capture = "The user continues run", map[string]string{"kept": `Kept, not published: ([0-9a-f]{40})`}
	cheat := task("Have it pass.", "{{weak}}")
	cheat.Capture = map[string]string{"weak": `kept, not published: ([0-9a-f]{40})`}
	look := bash("cat " + path + "; cat workspace/sum/half.txt")
	calls := edit("sum.js", "a * b", "a + b")
	calls.Match = `a \* b[^|]*only half`
	script := join(
		turnsOf("director", "make the sum right", task("Make the test of workspace/sum pass.", ""), report("failed", "Its check fails still.")),
		turnsOf("associate", "", edit("sum.js", "a - b", "a * b"), modelserver.Turn{Calls: call("write", object{"path": "workspace/sum/half.txt", "content": "only half\n"})}, finish("ok", "Done, I think.")),
		turnsOf("director", "finish what you began", goOn, report("done", "The test passes.")),
		turnsOf("associate", "", look, calls, finish("ok", "add adds now")),
		turnsOf("director", "weaken it", task("Weaken the test.", ""), cheat, report("done", "It passes.")),
		turnsOf("associate", "", edit("sum.js", "a + b", "a * b"), edit("test.js", "), 5)", "), 6)"), finish("failed", "Later."), bash("true"), finish("ok", "It passes.")),
	)
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: script}, "CHOIR_LOOPS_REPAIRS=0")
	in.Must(t, "add", makeFixture(t))

	first := prompt(t, in, "make the sum right")
	if first.Status != "failed" {
		t.Fatalf("%+v (turns left: %v)", first, s.Left())
	}
	was := runOf(t, in, first.Run).Tasks[0].Result
	if was == nil || was.Verification.Status != contract.VerificationFail || was.Kept == nil || was.Kept.Paths != 2 || was.Kept.Base != was.Base {
		t.Fatalf("the first run's result: %+v", was)
	}
	if got := in.Must(t, "files", "cat", path); got != fixtureFiles["sum.js"] {
		t.Errorf("what failed is live: %q", got)
	}
	if got := in.Must(t, "runs", first.Run); !strings.Contains(got, was.Kept.Commit) {
		t.Errorf("choir runs does not show what was kept:\n%s", got)
	}

	second := continueRun(t, in, "--continue", first.Run, "finish what you began")
	if second.Status != "done" || second.code != 0 {
		t.Fatalf("%+v (turns left: %v)", second, s.Left())
	}
	run := runOf(t, in, second.Run)
	res := run.Tasks[0].Result
	if run.Continues != first.Run || run.Verified != contract.VerificationPass || res == nil || res.Base != was.Base || res.Kept != nil || len(res.Changes) != 2 {
		t.Errorf("the follow-up: %+v, %+v", run, res)
	}
	if got := in.Must(t, "files", "cat", path); !strings.Contains(got, "a + b") {
		t.Errorf("live: %q", got)
	}
	if got := in.Must(t, "files", "cat", "workspace/sum/half.txt"); got != "only half\n" {
		t.Errorf("live: %q", got)
	}

	third := continueRun(t, in, "--continue", "weaken it") // the newest one
	run = runOf(t, in, third.Run)
	if run.Continues != second.Run || len(run.Tasks) != 2 || run.Tasks[1].Result == nil {
		t.Fatalf("%+v (turns left: %v)", run, s.Left())
	}
	if v := run.Tasks[1].Result.Verification; v.Status == contract.VerificationPass || run.Verified == contract.VerificationPass ||
		!strings.Contains(strings.Join(v.Said, "\n"), "workspace/sum/test.js") {
		t.Errorf("a kept tree judges itself: %+v", v)
	}
}

// TestAFollowUpFinishesWhatTimeOrAQuestionEnded shows through the binary that a task whose time was used up, and one that ended with
// a question, keep their tree, which is not live, and that a follow-up prompt finishes the work from it.
func TestAFollowUpFinishesWhatTimeOrAQuestionEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		budget object
		then   modelserver.Turn // behind what was written
		status contract.ResultStatus
		says   string // in the result
		least  time.Duration
	}{
		{"its time", object{"wall_s": 12}, modelserver.Turn{Fault: &modelserver.Fault{Kind: "hang"}}, contract.ResultFailed, "12 seconds", 12 * time.Second},
		{"a question", object{}, modelserver.Turn{Calls: call("finish", object{"status": "needs_input", "summary": "Half of it.", "question": "Which other half?", "requests": []any{object{"type": "approval", "text": "Somebody must agree to the other half."}}})},
			contract.ResultNeedsInput, "Which other half?", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := func(goal, base string) modelserver.Turn {
				turn := object{"kind": "agent", "goal": goal, "tools": []any{"read", "edit", "write", "bash"}, "verify": object{"profile": "none"}, "budget": c.budget}
				if base != "" {
					turn["base"] = base
				}
				return delegate(turn)
			}
			goOn := task("Write the other half.", "{{kept}}")
			goOn.Match, goOn.Capture = "The user continues run", map[string]string{"kept": `Kept, not published: ([0-9a-f]{40})`}
			rest := modelserver.Turn{Calls: call("edit", object{"path": "workspace/note.txt", "old": "one half\n", "new": "one half\nthe other half\n"})}
			in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
				turnsOf("director", "write both halves", task("Write both halves.", ""), report("failed", "Only half of it was written.")),
				turnsOf("associate", "Write both halves", modelserver.Turn{Calls: call("write", object{"path": "workspace/note.txt", "content": "one half\n"})}, c.then),
				turnsOf("director", "finish it", goOn, report("done", "Both halves are there.")),
				turnsOf("associate", "Write the other half", bash("cat workspace/note.txt"), rest, finish("ok", "Both halves.")),
			)})
			first := prompt(t, in, "write both halves")
			was := runOf(t, in, first.Run).Tasks[0].Result
			if first.Status != "failed" || was == nil || was.Status != c.status || was.Kept == nil || was.Kept.Paths == 0 {
				t.Fatalf("kept %+v; %+v, %+v (turns left: %v)", kept(was), first, was, s.Left())
			}
			if said := fmt.Sprint(was.Summary, was.Questions); !strings.Contains(said, c.says) {
				t.Errorf("the result says %q, not %q", said, c.says)
			}
			if c.status == contract.ResultNeedsInput {
				shown := in.Must(t, "runs", first.Run)
				if doc := in.Must(t, "documents", "show", runOf(t, in, first.Run).Document); len(was.Requests) != 1 || !strings.Contains(shown, "approval: Somebody must agree") || !strings.Contains(doc, "Wants approval: Somebody must agree") {
					t.Errorf("what it requests: %+v\n%s\n%s", was.Requests, shown, doc)
				}
			}
			if took := time.Duration(was.Usage.WallMS) * time.Millisecond; took < c.least {
				t.Errorf("the task ended after %s of its %s", took, c.least)
			}
			if r, err := in.Run(t.Context(), "files", "cat", "workspace/note.txt"); err != nil || r.Code == 0 {
				t.Errorf("half of it is live: %q, %v", r.Stdout, err)
			}
			second := continueRun(t, in, "--continue", first.Run, "finish it")
			if second.Status != "done" || second.code != 0 {
				t.Fatalf("%+v (turns left: %v)", second, s.Left())
			}
			if res := runOf(t, in, second.Run).Tasks[0].Result; res == nil || res.Base != was.Base || res.Kept != nil || len(res.Changes) == 0 {
				t.Errorf("the follow-up: %+v", res)
			}
			if got := in.Must(t, "files", "cat", "workspace/note.txt"); got != "one half\nthe other half\n" {
				t.Errorf("live: %q", got)
			}
			if left := s.Left(); len(left) > 0 && c.then.Fault == nil {
				t.Errorf("turns left: %v", left)
			}
		})
	}
}

func kept(r *contract.AssociateResult) *contract.KeptTree {
	if r == nil {
		return nil
	}
	return r.Kept
}
