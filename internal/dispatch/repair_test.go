package dispatch_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestAFailedCheckGoesBackToTheSameLoop shows that a loop whose work failed its checks is asked again, in
// the same attempt and on the same tree, behind the turns that it had, with what failed; and that what it
// repaired is verified and published as the one result.
func TestAFailedCheckGoesBackToTheSameLoop(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	var before, behind atomic.Pointer[contract.TurnRequest]
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 2:
			before.Store(&req)
		case 3:
			behind.Store(&req)
		}
		return steps(blue, broken, done, repaired)(n, req)
	}
	rep := h.report(h.submit("go"))
	h.quiet()
	res := h.results()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass || len(res) != 1 || res[0].Attempt != 1 || res[0].Repairs != 1 {
		t.Fatalf("%+v, results %+v\n%s", rep, res, h.story())
	}
	if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo two\n" {
		t.Errorf("live: %q", got)
	}
	old, now := before.Load().Messages, behind.Load().Messages
	last := now[len(now)-1].Parts[0].Return
	if last == nil || !last.IsError || !strings.Contains(last.Content, "syntax error") || !strings.Contains(last.Content, "exit code") || !strings.Contains(last.Content, "repair 1 of at most 3") {
		t.Errorf("the loop is told %+v", now[len(now)-1])
	}
	for i, m := range old[1:] {
		if fmt.Sprintf("%+v", shownParts(m)) != fmt.Sprintf("%+v", shownParts(now[i+1])) {
			t.Errorf("what was said before is told otherwise: %+v, then %+v", m, now[i+1])
		}
	}
	if n := len(h.events("repair.requested")); n != 1 {
		t.Errorf("%d repairs are in the log", n)
	}
	if n := len(h.events("verification.finished")); n != 2 {
		t.Errorf("%d verifications are in the log", n)
	}
}

// shownParts is a message by value.
func shownParts(m contract.Message) (out []string) {
	for _, p := range m.Parts {
		switch {
		case p.Call != nil:
			out = append(out, fmt.Sprintf("%+v", *p.Call))
		case p.Return != nil:
			out = append(out, fmt.Sprintf("%+v", *p.Return))
		default:
			out = append(out, p.Text)
		}
	}
	return out
}

// TestRepairsAreBounded shows that a loop which never repairs its work fails after the configured number of
// repairs, and that one which changes nothing, or has used up its calls, is not asked again.
func TestRepairsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		turns   func(int, contract.TurnRequest) []contract.Part
		task    m
		repairs int
	}{
		"it always breaks it otherwise": {func(n int, _ contract.TurnRequest) []contract.Part {
			if n%2 == 0 {
				return parts(use(fmt.Sprint("w", n), "write", m{"overwrite": true, "path": "workspace/a.sh", "content": fmt.Sprint("if then ", n)}))
			}
			return parts(use(fmt.Sprint("f", n), "finish", m{"status": "ok", "summary": "done"}))
		}, agentTask, 3},
		"it changes nothing":    {steps(broken), agentTask, 1},
		"its calls are used up": {func(int, contract.TurnRequest) []contract.Part { return parts(broken, done) }, spends(m{"tool_calls": 1}), 0},
		"fixed steps":           {nil, m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "workspace/a.sh", "content": "if then"}}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.model.director, h.model.associate = plan(c.task), c.turns
			rep := h.report(h.submit("go"))
			h.quiet()
			res := h.results()
			if rep.Status != contract.RunFailed || len(res) != 1 || res[0].Repairs != c.repairs || res[0].Verification.Status != contract.VerificationFail {
				t.Fatalf("%+v, results %+v", rep, res)
			}
			if n := len(h.events("repair.requested")); n != c.repairs {
				t.Errorf("%d repairs; want %d", n, c.repairs)
			}
			if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo one\n" {
				t.Errorf("live: %q", got)
			}
		})
	}
}

// spends is agentTask with a budget.
func spends(budget m) m {
	task := maps.Clone(agentTask)
	task["budget"] = budget
	return task
}

// TestNoRepairBehindTheTimeOfATask shows that a task whose time is used up when its checks fail is not asked again. What it
// worked before a restart counts.
func TestNoRepairBehindTheTimeOfATask(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(spends(m{"wall_s": 60}))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 1 {
			h.ahead.Add(int64(61 * time.Second)) // its last turn is recorded by then
		}
		return steps(broken, done, repaired)(n, req)
	}
	checking := make(chan struct{})
	var restarted atomic.Bool
	h.boxes.break_ = func(r ports.BoxRequest) error {
		if r.Kind == contract.BoxVerify && !restarted.Load() {
			select {
			case <-checking:
			default:
				close(checking)
			}
			<-h.d.Closed()
			return errors.New("the process ends")
		}
		return nil
	}
	run := h.submitWithin(contract.Budget{WallS: 3000})
	<-checking
	h.d.Close()
	restarted.Store(true)
	h.restart()
	h.report(run)
	h.quiet()
	if res := h.results(); len(res) != 1 || res[0].Repairs != 0 || res[0].Verification.Status != contract.VerificationFail || len(h.events("repair.requested")) > 0 {
		t.Errorf("%+v\n%s", res, h.story())
	}
}

// TestWhoGivesUpARepairHasFailedItsChecks shows that an attempt which was sent back and then ends otherwise
// keeps the verdict of the checks that it failed: a later task has to pass them.
func TestWhoGivesUpARepairHasFailedItsChecks(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(broken, done, use("f2", "finish", m{"status": "failed", "summary": "I can't."}))
	h.report(h.submit("go"))
	h.quiet()
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultFailed || res[0].Verification.Status != contract.VerificationFail || len(res[0].Verification.Checks) == 0 {
		t.Errorf("%+v", res)
	}
}

// TestATaskGetsWhatIsLeftOfItsRun shows that a task of an agent gets what is left of the run's time, tokens
// and cost, one of fixed steps 300 seconds, and neither more than it asks for.
func TestATaskGetsWhatIsLeftOfItsRun(t *testing.T) {
	h := newHouse(t)
	less := m{"kind": "agent", "goal": "g", "tools": []string{"edit"}, "budget": m{"wall_s": 60, "tool_calls": 0, "tokens": 10, "cost_usd": 0}}
	h.model.director = plan(agentTask, less, m{"kind": "exec", "goal": "steps", "steps": []m{{"run": m{"argv": []string{"true"}}}}})
	h.model.associate = steps()
	h.report(h.submitWithin(contract.Budget{WallS: 3000, Tokens: 1_000_000, CostUSD: 5}))
	h.quiet()
	var got []contract.Budget
	for _, p := range h.events("task.requested") {
		got = append(got, p.(*contract.TaskRequested).Task.Budget)
	}
	if len(got) != 3 {
		t.Fatal(got)
	}
	if b := got[0]; b.WallS <= 300 || b.WallS > 3000 || b.Tokens <= 10 || b.Tokens > 1_000_000 || b.CostUSD <= 0 || b.CostUSD > 5 {
		t.Errorf("an agent's task gets %+v", b)
	}
	if b := got[1]; b.WallS != 60 || b.Tokens != 10 {
		t.Errorf("a task that asks for less gets %+v", b)
	}
	if b := got[2]; b.WallS != contract.DefaultWallS {
		t.Errorf("a task of steps gets %+v", b)
	}
}
