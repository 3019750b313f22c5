package dispatch_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
)

// saidTo returns all that a request's messages say.
func saidTo(req contract.TurnRequest) string {
	var b strings.Builder
	for _, msg := range req.Messages {
		for _, p := range msg.Parts {
			b.WriteString(p.Text)
			if p.Return != nil {
				b.WriteString(p.Return.Content)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

var keptLine = regexp.MustCompile(`kept, not published: ([0-9a-f]{40}) \((\d+) paths\)`)

// goingOn makes a Director that delegates a task and then another, with what was kept of the first as its
// base.
func goingOn(t *testing.T, first, second m) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("d0", "delegate", m{"tasks": []m{first}}))
		case 1:
			kept := keptLine.FindStringSubmatch(saidTo(req))
			if kept == nil {
				t.Errorf("the Director is told of no kept tree: %s", saidTo(req))
				break
			}
			task := m{"base": kept[1]}
			for k, v := range second {
				task[k] = v
			}
			return parts(use("d1", "delegate", m{"tasks": []m{task}}))
		}
		return parts(use("d2", "report", m{"status": "done", "summary": "It is done."}))
	}
}

// agent is a task of kind agent with a goal.
func agent(goal string) m {
	return m{"kind": "agent", "goal": goal, "tools": []string{"read", "write", "edit", "bash"}, "verify": m{"profile": "standard"}}
}

// TestWhatWasNotPublishedIsKept shows that however an attempt ends that is not published, what it wrote is
// kept and named in its result, and is not live.
func TestWhatWasNotPublishedIsKept(t *testing.T) {
	wrote := use("c0", "write", m{"path": "workspace/b.txt", "content": "half of it\n"})
	for name, c := range map[string]struct {
		then   contract.Part
		task   m
		status contract.ResultStatus
		kept   int
	}{
		"it asks something": {use("f", "finish", m{"status": "needs_input", "summary": "?", "question": "Which one?"}), agent("work"), contract.ResultNeedsInput, 1},
		"it gives up":       {use("f", "finish", m{"status": "failed", "summary": "No."}), agent("work"), contract.ResultFailed, 1},
		"it has no calls left": {use("c1", "bash", m{"command": "true"}), m{"kind": "agent", "goal": "work", "tools": []string{"write", "bash"}, "budget": m{"tool_calls": 1}},
			contract.ResultFailed, 1},
		"its model says nothing of use": {contract.Part{Text: "Hm."}, agent("work"), contract.ResultFailed, 1},
		"its steps fail": {contract.Part{}, m{"kind": "exec", "goal": "work", "steps": []m{{"write": m{"path": "workspace/b.txt", "content": "half of it\n"}}, {"run": m{"argv": []string{"false"}}}}},
			contract.ResultFailed, 1},
		"it wrote nothing": {contract.Part{}, m{"kind": "exec", "goal": "work", "steps": []m{{"run": m{"argv": []string{"false"}}}}}, contract.ResultFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.model.director = plan(c.task)
			h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(wrote)
				}
				return parts(c.then)
			}
			h.report(h.submit("go"))
			h.quiet()
			res := h.results()
			if len(res) != 1 || res[0].Status != c.status || h.kept(res[0]) != c.kept || h.ws.kept() != c.kept {
				t.Fatalf("%+v, %d kept\n%s", res, h.ws.kept(), h.story())
			}
			if readFile(h.ws.live(), "workspace/b.txt") != nil {
				t.Error("it is live")
			}
			if c.kept > 0 && string(readFile(filepath.Join(h.ws.dir, "commits", res[0].Kept.Commit), "workspace/b.txt")) != "half of it\n" {
				t.Errorf("%+v does not hold what was written", res[0].Kept)
			}
		})
	}
}

// TestATaskGoesOnFromAKeptTree shows that the Director is told of a kept tree, and that a task whose base it
// is finds what was written, is checked, and publishes all of it.
func TestATaskGoesOnFromAKeptTree(t *testing.T) {
	h := newHouse(t)
	h.model.director = goingOn(t, agent("begin"), agent("go on"))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "go on") {
			return steps(use("r", "read", m{"path": "workspace/b.txt"}), use("e", "edit", m{"path": "workspace/b.txt", "old": "half", "new": "all"}))(n, req)
		}
		return [][]contract.Part{parts(use("c0", "write", m{"path": "workspace/b.txt", "content": "half of it\n"})),
			parts(use("f", "finish", m{"status": "needs_input", "summary": "?", "question": "Go on?"}))}[min(n, 1)]
	}
	h.report(h.submit("go"))
	h.quiet()
	res := h.results()
	if len(res) != 2 || res[1].Status != contract.ResultOK || res[1].Verification.Status != contract.VerificationPass || res[1].Head == "" || res[1].Kept != nil {
		t.Fatalf("%+v\n%s", res, h.story())
	}
	if res[1].Base != res[0].Base || len(res[1].Changes) != 1 || res[1].Changes[0].Op != contract.ChangeAdded {
		t.Errorf("compared with %s, where the first was with %s: %+v", res[1].Base, res[0].Base, res[1].Changes)
	}
	if got := string(readFile(h.ws.live(), "workspace/b.txt")); got != "all of it\n" {
		t.Errorf("live: %q", got)
	}
}

// TestAKeptTreeDoesNotJudgeItself shows that a task can't get its work past the checks by having them
// weakened in a tree that is kept and gone on from: the tests are those of the checkpoint that the first
// attempt began from.
func TestAKeptTreeDoesNotJudgeItself(t *testing.T) {
	h := newHouse(t)
	h.model.director = goingOn(t, agent("begin"), agent("go on"))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "go on") {
			return steps(use("e", "write", m{"path": "workspace/a.sh", "content": "if then # more\n", "overwrite": true}))(n, req)
		}
		turns := [][]contract.Part{parts(broken), parts(use("w", "write", m{"path": "workspace/test_a.py", "content": strings.ReplaceAll(testOfA, "returncode, 0", "returncode, 2"), "overwrite": true})),
			parts(use("f", "finish", m{"status": "failed", "summary": "Later."}))}
		return turns[min(n, 2)]
	}
	rep := h.report(h.submit("go"))
	h.quiet()
	res := h.results()
	if len(res) != 2 || h.kept(res[0]) != 2 {
		t.Fatalf("%+v\n%s", res, h.story())
	}
	// It is what a task gets that weakens its own checks: not verified, and it is said what it changed.
	v := res[1].Verification
	if v.Status != contract.VerificationUnknown || !strings.Contains(v.Reason, "with what the base judges by, python tests (workspace): exit code 1") ||
		!slices.Contains(v.Said, "the task changed the test workspace/test_a.py") || rep.Verified == contract.VerificationPass {
		t.Errorf("%+v\n%+v", v, rep)
	}
}

// TestABaseThatNobodyRecordedIsRefused shows that a task can't start from any commit that its Director
// names.
func TestABaseThatNobodyRecordedIsRefused(t *testing.T) {
	h := newHouse(t)
	task := agent("begin")
	task["base"] = strings.Repeat("f", 40)
	var told string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 1 {
			told = saidTo(req)
		}
		return plan(task)(n, req)
	}
	h.report(h.submit("go"))
	h.quiet()
	if !strings.Contains(told, "tasks[0].base") || !strings.Contains(told, "nothing to start from") || len(h.events("task.requested")) != 0 {
		t.Errorf("%s\n%s", told, h.story())
	}
}
