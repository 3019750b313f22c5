package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// reviewed has a user look at what runs make before it is published.
func (h *house) reviewed() {
	h.tune = func(o *dispatch.Options) { o.Review = true }
	h.sleep()
	h.wake()
}

// review waits until the n-th review is asked for.
func (h *house) review(run string, n int) contract.ReviewRequested {
	h.t.Helper()
	return *h.told(run, "review.requested", func(p contract.Payload) bool { return p.(*contract.ReviewRequested).Review == n }).(*contract.ReviewRequested)
}

// task is the only task of the log.
func (h *house) task() string {
	h.t.Helper()
	return h.events("task.requested")[0].(*contract.TaskRequested).Task.ID
}

// look answers a review as its user.
func (h *house) look(run string, r contract.ReviewRequested, a contract.ReviewAnswered) error {
	a.Attempt, a.Review, a.Work = r.Attempt, r.Review, r.Work
	_, err := h.d.Looked(h.t.Context(), contract.Person("u"), run, h.task(), a)
	return err
}

func (h *house) liveNow() string {
	return string(readFile(h.ws.live(), "workspace/a.sh")) + string(readFile(h.ws.live(), "choiros/x.css"))
}

var (
	take    = contract.ReviewAnswered{Decision: contract.ReviewPublish}
	discard = contract.ReviewAnswered{Decision: contract.ReviewDiscard, Comments: []contract.ReviewComment{{Text: "not now"}}}
	revise  = contract.ReviewAnswered{Decision: contract.ReviewRevise, Comments: []contract.ReviewComment{{Path: "workspace/a.sh", Line: 1, Quote: "echo one", Text: "say three"}}}
)

// TestNothingIsPublishedBeforeItIsLookedAt shows that nothing of a run's work is live before its user has taken
// it, not even what is otherwise shown while the task works; that it is taken whole then; and that who took
// it is in the result.
func TestNothingIsPublishedBeforeItIsLookedAt(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director, h.model.associate = plan(agentTask), steps(blue, edit("c1"))
	run := h.submit("go")
	r := h.review(run, 1)
	moved := h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting }).(*contract.RunMoved)
	if h.liveNow() != "echo one\nred\n" || r.Paths != 2 || !strings.Contains(moved.Reason, "waits until you have looked at it") {
		t.Fatalf("live %q, %+v, %+v", h.liveNow(), r, moved)
	}
	if n := len(h.events("publish.started")); n > 0 {
		t.Errorf("%d publishes began", n)
	}
	choirtest.Eventually(t, time.Minute, "nothing keeps the computer awake", func() bool { return !h.d.Busy() && !h.d.Open() })
	shown, err := h.d.Review(t.Context(), run, h.task())
	if err != nil || len(shown.Files) != 2 || shown.Work != r.Work || shown.Decision != "" || shown.Verification == nil || shown.Verification.Status != contract.VerificationPass {
		t.Fatalf("%+v, %v", shown, err)
	}
	for name, other := range map[string]contract.ReviewRequested{"another review": {Attempt: 1, Review: 2, Work: r.Work}, "another tree": {Attempt: 1, Review: 1, Work: r.Base}} {
		if err := h.look(run, other, take); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s was answered: %v", name, err)
		}
	}
	if err := h.look(run, r, take); err != nil {
		t.Fatal(err)
	}
	if err := h.look(run, r, discard); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
		t.Errorf("a second answer: %v", err)
	}
	rep := h.report(run)
	h.quiet()
	res := h.results()[0]
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass || h.liveNow() != "echo two\nblue\n" || res.Reviewed == nil || res.Reviewed.Decision != contract.ReviewPublish ||
		res.Reviewed.By != "person:u" || res.Reviewed.Work != r.Work || res.Kept != nil {
		t.Errorf("%+v, live %q, %+v", rep, h.liveNow(), res.Reviewed)
	}
}

// TestOnlyWhatWasTakenIsPublished shows that of a part that was taken nothing else is live, that it is checked as
// it will be, and that all of the work is kept.
func TestOnlyWhatWasTakenIsPublished(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director, h.model.associate = plan(agentTask), steps(blue, edit("c1"))
	run := h.submit("go")
	r := h.review(run, 1)
	if err := h.look(run, r, contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "workspace/none"}}}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("what was not changed was taken: %v", err)
	}
	if err := h.look(run, r, contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "choiros/x.css"}}}); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	res := h.results()[0]
	if rep.Status != contract.RunDone || h.liveNow() != "echo one\nblue\n" || len(res.Changes) != 1 || res.Kept == nil || res.Kept.Paths != 2 || !strings.Contains(res.Summary, "took a part of it: 1 of 2") {
		t.Errorf("%+v, live %q, %+v", rep, h.liveNow(), res)
	}
	if n := len(h.events("verification.finished")); n != 2 {
		t.Errorf("%d trees were checked", n)
	}
}

// TestWhatIsTakenHasToPass shows that a part which fails its checks by itself is not published, and is shown
// once more with what failed; and that the loop is not asked to repair what a person chose.
func TestWhatIsTakenHasToPass(t *testing.T) {
	h := newHouse(t)
	put(h.ws.live(), "workspace/test_b.py", []byte("import subprocess, unittest\n\nclass B(unittest.TestCase):\n    def test_it_runs(self):\n        self.assertEqual(subprocess.run([\"bash\", \"a.sh\"]).returncode, 0)\n"))
	h.reviewed()
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("w1", "write", m{"path": "workspace/lib.sh", "content": "echo lib\n"}), use("w2", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "set -e; . ./lib.sh\n"}))
	run := h.submit("go")
	r := h.review(run, 1)
	if err := h.look(run, r, contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "workspace/a.sh"}}}); err != nil {
		t.Fatal(err)
	}
	again := h.review(run, 2)
	if !strings.Contains(again.Reason, "fails its checks") || again.Work != r.Work || h.liveNow() != "echo one\nred\n" || len(h.events("repair.requested")) > 0 {
		t.Fatalf("%+v, live %q", again, h.liveNow())
	}
	if err := h.look(run, again, take); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass || !strings.Contains(h.liveNow(), "lib.sh") {
		t.Errorf("%+v, live %q", rep, h.liveNow())
	}
}

// TestCommentsGoBackToTheLoop shows that what a person says of the work is told to the loop that made it, in
// the same attempt and behind the turns that it had, across a restart; and that they are shown what it made
// of it.
func TestCommentsGoBackToTheLoop(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director = plan(agentTask)
	var mu sync.Mutex
	told := ""
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		last := req.Messages[len(req.Messages)-1].Parts
		if r := last[0].Return; r != nil && strings.Contains(r.Content, "the user has looked at your work") {
			mu.Lock()
			told = r.Content
			mu.Unlock()
			return parts(use("c9", "edit", m{"path": "workspace/a.sh", "old": "two", "new": "three"}))
		}
		return steps(edit("c1"))(n, req)
	}
	run := h.submit("go")
	r := h.review(run, 1)
	h.restart()
	for _, c := range []contract.ReviewComment{{Path: "nosuch.txt", Line: 1, Text: "say it"}, {Path: "workspace/a.sh", Line: 99, Text: "say it"}} {
		if err := h.look(run, r, contract.ReviewAnswered{Decision: contract.ReviewRevise, Comments: []contract.ReviewComment{c}}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a comment on %s:%d: %v", c.Path, c.Line, err)
		}
	}
	if err := h.look(run, r, revise); err != nil {
		t.Fatal(err)
	}
	second := h.review(run, 2)
	if h.liveNow() != "echo one\nred\n" || second.Work == r.Work {
		t.Fatalf("live %q, %+v", h.liveNow(), second)
	}
	if err := h.look(run, second, take); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(told, "workspace/a.sh:1 `echo one`\n  say three") {
		t.Errorf("the loop was told %q", told)
	}
	res := h.results()
	if rep.Status != contract.RunDone || h.liveNow() != "echo three\nred\n" || len(res) != 1 || res[0].Attempt != 1 || res[0].Repairs != 0 {
		t.Errorf("%+v, live %q, %+v", rep, h.liveNow(), res)
	}
}

// TestWhatIsDiscardedIsKeptAndTold shows that nothing of what a person discards is live, that it is kept, and that the
// Director is told so with what they say; a run without one ends there.
func TestWhatIsDiscardedIsKeptAndTold(t *testing.T) {
	for name, planned := range map[string]bool{"a Director": true, "no Director": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.tune = func(o *dispatch.Options) { o.Review, o.DirectWords = true, 30 }
			h.sleep()
			h.wake()
			told := ""
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				told = saidTo(req)
				return plan(agentTask)(n, req)
			}
			h.model.associate = steps(blue, edit("c1"))
			prompt := dispatch.Prompt{By: contract.Person("u"), Text: "go", Route: contract.RouteDirect}
			if planned {
				prompt.Route = contract.RoutePlan
			}
			run, _, err := h.d.Submit(t.Context(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.look(run, h.review(run, 1), discard); err != nil {
				t.Fatal(err)
			}
			rep := h.report(run)
			h.quiet()
			res := h.results()[0]
			if res.Status != contract.ResultCancelled || h.liveNow() != "echo one\nred\n" || res.Kept == nil || res.Kept.Paths != 2 || !strings.Contains(res.Summary, "wants none of it") || !strings.Contains(res.Summary, "not now") {
				t.Errorf("live %q, %+v", h.liveNow(), res)
			}
			if !planned {
				if told != "" || rep.Status == contract.RunDone || !strings.Contains(rep.Summary, "not now") {
					t.Errorf("it does not end there: %+v, a Director is told %q", rep, told)
				}
				return
			}
			for _, want := range []string{"wants none of it", "not now", res.Kept.Commit} {
				if !strings.Contains(told, want) {
					t.Errorf("the Director is not told %q: %s", want, told)
				}
			}
		})
	}
}

// TestAReviewWithoutBudgetLeftIsNotSentBack shows that work whose budget is used up can't be sent back to its loop: the
// person is asked again and told why, and what they take then is published.
func TestAReviewWithoutBudgetLeftIsNotSentBack(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director = plan(spends(m{"tool_calls": 1}))
	h.model.associate = func(int, contract.TurnRequest) []contract.Part { return parts(edit("c1"), done) }
	run := h.submit("go")
	first := h.review(run, 1)
	if err := h.look(run, first, revise); err != nil {
		t.Fatal(err)
	}
	again := h.review(run, 2)
	if !strings.Contains(again.Reason, "its budget is used up") || again.Work != first.Work || len(h.events("repair.requested")) > 0 {
		t.Fatalf("%+v\n%s", again, h.story())
	}
	if err := h.look(run, again, take); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone || h.liveNow() != "echo two\nred\n" {
		t.Errorf("%+v, live %q", rep, h.liveNow())
	}
}

// TestADecisionOutlivesWhatPasses shows that what a person has decided is done once the keeper is there again, or
// the disk has room: nobody is asked once more, and nothing begins anew.
func TestADecisionOutlivesWhatPasses(t *testing.T) {
	for name, why := range map[string]error{
		"the keeper is being restarted": fault.New("choose", fault.Unavailable, "", errors.New("the keeper is being restarted")),
		"the disk is full":              fault.New("choose", fault.DiskFull, fault.FreeSpace, syscall.ENOSPC),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.reviewed()
			h.model.director, h.model.associate = plan(agentTask), steps(blue, edit("c1"))
			var tried atomic.Int32
			h.ws.choose = func() error {
				if tried.Add(1) < 3 {
					return why
				}
				return nil
			}
			run := h.submit("go")
			if err := h.look(run, h.review(run, 1), contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "choiros/x.css"}}}); err != nil {
				t.Fatal(err)
			}
			rep := h.report(run)
			h.quiet()
			res := h.results()
			if rep.Status != contract.RunDone || len(res) != 1 || res[0].Attempt != 1 || h.liveNow() != "echo one\nblue\n" || len(h.events("review.requested")) != 1 {
				t.Errorf("%+v, %+v, live %q", rep, res, h.liveNow())
			}
		})
	}
}

// TestADecisionThatCanNotBeDoneIsTold shows that the result of an attempt which could not do what a person decided says
// what they took, that it was not published, and what is in the way.
func TestADecisionThatCanNotBeDoneIsTold(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director, h.model.associate = plan(agentTask), steps(blue, edit("c1"))
	h.ws.choose = func() error {
		return fault.New("choose", fault.Damaged, "Restore it.", errors.New("a part of it is damaged"))
	}
	run := h.submit("go")
	if err := h.look(run, h.review(run, 1), contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "choiros/x.css"}}}); err != nil {
		t.Fatal(err)
	}
	h.report(run)
	h.quiet()
	res := h.results()[0]
	if res.Status != contract.ResultFailed || res.Reviewed == nil || res.Kept == nil || h.liveNow() != "echo one\nred\n" {
		t.Errorf("live %q, %+v", h.liveNow(), res)
	}
	for _, want := range []string{"a part of it is damaged. Restore it.", "took a part of it: 1 of 2 changed files in whole or in part. It was not published."} {
		if !strings.Contains(res.Summary, want) {
			t.Errorf("its summary lacks %q: %q", want, res.Summary)
		}
	}
}

// TestAllCommentsAreTold shows that a loop is told all that a review may say.
func TestAllCommentsAreTold(t *testing.T) {
	a := contract.ReviewAnswered{Attempt: 1, Review: 1, Work: strings.Repeat("a", 40), Decision: contract.ReviewRevise}
	for i := range 4 {
		a.Comments = append(a.Comments, contract.ReviewComment{Text: fmt.Sprintf("COMMENT-%d ", i) + strings.Repeat("w ", 4000) + fmt.Sprintf("END-%d", i)})
	}
	if err := a.Validate(); err != nil {
		t.Fatal(err)
	}
	told := summary.Comments(a)
	for i := range 4 {
		if !strings.Contains(told, fmt.Sprintf("COMMENT-%d", i)) || !strings.Contains(told, fmt.Sprintf("END-%d", i)) {
			t.Errorf("comment %d is not told whole", i)
		}
	}
	if err := (contract.RepairRequested{Attempt: 1, Review: 1, Failed: told}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestARunUnderReviewRestoresNothing shows that no task of a run whose user looks first goes back to a
// checkpoint, which would be live at once.
func TestARunUnderReviewRestoresNothing(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	var mu sync.Mutex
	said := ""
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			return plan(m{"kind": "git", "goal": "back", "steps": []m{{"git": m{"op": "restore", "ref": strings.Repeat("1", 40)}}}})(n, req)
		}
		mu.Lock()
		said += req.Messages[len(req.Messages)-1].Parts[0].Return.Content
		mu.Unlock()
		return parts(use("r", "report", m{"status": "failed", "summary": "no"}))
	}
	h.report(h.submit("go"))
	h.quiet()
	mu.Lock()
	defer mu.Unlock()
	if n := len(h.events("task.requested")); n > 0 || !strings.Contains(said, "before the user has looked at it") {
		t.Errorf("%d tasks, the Director is told %q", n, said)
	}
}

// TestAWaitingRunSaysWhatItStillWaitsFor shows that of two tasks that wait to be looked at, the one that was answered is not
// what the run goes on to say that it waits for.
func TestAWaitingRunSaysWhatItStillWaitsFor(t *testing.T) {
	h := newHouse(t)
	h.reviewed()
	h.model.director = plan(agent("Write one"), agent("Write two"))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		path := "workspace/one.txt"
		if strings.Contains(saidTo(req), "Write two") {
			path = "workspace/two.txt"
		}
		return steps(use("c1", "write", m{"path": path, "content": "x\n"}))(n, req)
	}
	run := h.submit("go")
	goals, reviews := map[string]string{}, map[string]contract.ReviewRequested{}
	says := ""
	choirtest.Eventually(t, time.Minute, "both wait", func() bool {
		for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
			switch p := must(h.log.Payload(t.Context(), e)).(type) {
			case *contract.TaskRequested:
				goals[e.Task] = p.Task.Goal
			case *contract.ReviewRequested:
				reviews[e.Task] = *p
			case *contract.RunMoved:
				says = p.Reason
			}
		}
		return len(reviews) == 2 && h.d.Asking(run) == 2
	})
	other := ""
	for task, r := range reviews {
		if !strings.Contains(says, goals[task]) {
			other = goals[task]
			continue
		}
		if _, err := h.d.Looked(t.Context(), contract.Person("u"), run, task, contract.ReviewAnswered{Decision: contract.ReviewDiscard, Attempt: r.Attempt, Review: r.Review, Work: r.Work}); err != nil {
			t.Fatal(err)
		}
	}
	h.told(run, "task.finished", nil)
	h.told(run, "run.moved", func(p contract.Payload) bool {
		m := p.(*contract.RunMoved)
		if m.Status == contract.RunWaiting {
			says = m.Reason
		}
		return strings.Contains(says, other)
	})
	choirtest.Eventually(t, time.Minute, "it is settled", func() bool { return !h.d.Busy() })
	for _, p := range h.events("run.moved") {
		says = p.(*contract.RunMoved).Reason
	}
	if !strings.Contains(says, other) {
		t.Errorf("the run says that it waits for: %s", says)
	}
}
