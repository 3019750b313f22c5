package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/test/choirtest"
)

// mortal is a log whose process dies once it has stored a given number of events. Whatever is
// appended later waits until the dispatcher has ended.
type mortal struct {
	ports.Log
	left atomic.Int64
	dead chan struct{}
	end  <-chan struct{} // closed when the dispatcher that died has ended
	once sync.Once

	mu    sync.Mutex
	types []string // the types of the events of each append
}

func (l *mortal) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if l.left.Add(-1) < 0 {
		l.once.Do(func() { close(l.dead) })
		return nil, lastWait(ctx, l.end)
	}
	var types []string
	for _, d := range drafts {
		types = append(types, d.Type)
	}
	l.mu.Lock()
	l.types = append(l.types, strings.Join(types, " "))
	l.mu.Unlock()
	return l.Log.Append(ctx, drafts...)
}

// restart lets a new process take over and continue.
func (h *house) restart() {
	h.t.Helper()
	h.sleep()
	h.wrap = nil
	h.wake()
	if err := h.d.Recover(h.t.Context()); err != nil {
		h.t.Fatalf("recover: %v", err)
	}
}

func TestARestartGoesOnWithAnAgentTask(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	var unknown string
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(edit("c1"))
		case 1:
			return parts(use("c2", "bash", m{"command": "touch began; sleep 1000"}), use("c3", "read", m{"path": "workspace/a.sh"}))
		default:
			for _, p := range req.Messages[len(req.Messages)-1].Parts {
				if p.Return != nil {
					unknown += p.Return.Content + "\n"
				}
			}
			return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
		}
	}
	run := h.submit("go")
	h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Name == "bash" })
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "be quick"); err != nil {
		t.Fatal(err)
	}
	h.restart()
	rep := h.report(run)
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if !strings.HasPrefix(unknown, "Unknown: the box or the computer ended") || !strings.Contains(unknown, "Not run: the box or the computer ended before it") {
		t.Errorf("the model was told %q", unknown)
	}
	if res := h.results(); len(res) != 1 || res[0].Attempt != 1 || string(readFile(h.ws.live(), "workspace/a.sh")) != "echo two\n" {
		t.Fatalf("%+v", res)
	}
}

// TestAttack51_NoCallGoesWithoutItsResult shows that after a restart in the middle of a turn's
// calls the model is told the outcome of each of them.
func TestAttack51_NoCallGoesWithoutItsResult(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(edit("c1"))
		case 1:
			return parts(use("c2", "bash", m{"command": "sleep 1000"}), use("c3", "read", m{"path": "workspace/a.sh"}))
		}
		var open []string
		for _, msg := range req.Messages {
			for _, p := range msg.Parts {
				if p.Call != nil {
					open = append(open, p.Call.ID)
				}
				if p.Return != nil {
					open = slices.DeleteFunc(open, func(id string) bool { return id == p.Return.ID })
				}
			}
		}
		if len(open) > 0 {
			t.Errorf("calls went to the model without their results: %q", open)
		}
		return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
	}
	run := h.submit("go")
	h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Name == "bash" })
	h.restart()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
}

// TestAttack51_AQuestionIsAskedOnce shows that after a restart the user, who has been asked, still
// sees the same question and no second one.
func TestAttack51_AQuestionIsAskedOnce(t *testing.T) {
	h := newHouse(t)
	h.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
		for _, p := range h.events("question.answered") {
			if p.(*contract.QuestionAnswered).Answer == "blue" {
				return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
			}
		}
		return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red"}))
	}
	run := h.submit("a question")
	h.told(run, "question.asked", nil)
	h.restart()
	choirtest.Eventually(t, time.Minute, "the user is asked", func() bool { return h.d.Asking(run) == 1 })
	asked := h.events("question.asked")
	if len(asked) != 1 {
		t.Errorf("it was asked %d times", len(asked))
	}
	q := asked[len(asked)-1].(*contract.QuestionAsked).Question
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	h.report(run)
	h.quiet()
}

// TestAResultHasWhatWasRunBeforeARestart shows that a result lists what was run and reached before
// a restart as well as what came after it, also when the attempt did not end by itself.
func TestAResultHasWhatWasRunBeforeARestart(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		h := newHouse(t)
		h.model.director = plan(agentTask)
		h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
			switch n {
			case 0:
				return parts(edit("c1"))
			case 1:
				return parts(use("c2", "bash", m{"command": "echo before"}))
			case 2:
				return parts(use("c3", "bash", m{"command": "sleep 1000"}))
			case 3:
				return parts(use("c4", "bash", m{"command": "echo after"}))
			case 4:
				if cancelled {
					return parts(use("c5", "bash", m{"command": "sleep 1000"}))
				}
			}
			return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
		}
		run := h.submit("go")
		called := func(id string) {
			h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Call == id })
		}
		called("c3")
		task := h.told(run, "task.requested", nil).(*contract.TaskRequested).Task.ID
		for _, p := range []string{"egress.allowed", "egress.denied"} {
			if _, err := h.log.Append(t.Context(), contract.Draft{Actor: contract.System(), Type: p, Run: run, Task: task,
				Data: contract.EgressDecided{Box: "t-1", Kind: contract.BoxTask, Host: p + ".example", Port: 443}}); err != nil {
				t.Fatal(err)
			}
		}
		h.restart()
		if cancelled {
			called("c5")
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
				t.Fatal(err)
			}
		}
		h.report(run)
		h.quiet()
		res := h.results()
		if len(res) != 1 {
			t.Fatalf("%+v", res)
		}
		var said []string
		for _, c := range res[0].Commands {
			said = append(said, strings.TrimSpace(c.Stdout))
		}
		if !slices.Equal(said, []string{"before", "after"}) {
			t.Errorf("cancelled %v: the result has %q\n%s", cancelled, said, h.story())
		}
		if e := res[0].Egress; !slices.Equal(e.Allowed, []string{"egress.allowed.example:443"}) || !slices.Equal(e.Denied, []string{"egress.denied.example:443"}) {
			t.Errorf("cancelled %v: %+v", cancelled, e)
		}
	}
}

// TestARestartRepeatsACallThatOnlyReads shows that after a restart a call that only reads is made
// again, under its own id and before the model is asked, and that its return is recorded once.
func TestARestartRepeatsACallThatOnlyReads(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	saw := ""
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(edit("c1"))
		case 1:
			return parts(use("c2", "read", m{"path": "workspace/a.sh"}))
		default:
			for _, p := range req.Messages[len(req.Messages)-1].Parts {
				if p.Return != nil && !p.Return.IsError {
					saw += p.Return.Content
				}
			}
			return parts(use("f", "finish", m{"status": "ok", "summary": "went on"}))
		}
	}
	var l *dyingLog
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log {
		l = &dyingLog{Log: real, dead: make(chan struct{}), stop: func(d contract.Draft) bool {
			p, ok := d.Data.(*contract.ToolReturned)
			return ok && p.Name == "read"
		}}
		return l
	}
	h.wake()
	run := h.submit("go")
	<-l.dead
	h.restart()
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	if !strings.Contains(saw, "echo two") {
		t.Errorf("the model was told %q, not what the file holds", saw)
	}
	called, returned := 0, 0
	for _, p := range h.events("tool.called") {
		if p.(*contract.ToolCalled).Name == "read" {
			called++
		}
	}
	for _, p := range h.events("tool.returned") {
		if p.(*contract.ToolReturned).Name == "read" {
			returned++
		}
	}
	if called != 1 || returned != 1 {
		t.Errorf("%d calls and %d returns are in the log", called, returned)
	}
}

// dyingLog is a log whose process dies at the first draft for which stop returns true.
type dyingLog struct {
	ports.Log
	stop func(contract.Draft) bool
	dead chan struct{}
	once sync.Once
}

func (l *dyingLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	for _, d := range drafts {
		if l.stop(d) {
			l.once.Do(func() { close(l.dead) })
		}
	}
	select {
	case <-l.dead:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
		return l.Log.Append(ctx, drafts...)
	}
}

func TestARestartMakesOtherKindsAgain(t *testing.T) {
	h := newHouse(t)
	flag, begun := filepath.Join(h.dir, "second"), filepath.Join(h.dir, "begun")
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
		{"run": m{"argv": []string{"sh", "-c", "test -e " + flag + " && exit 0; touch " + begun + "; sleep 1000"}}}}})
	run := h.submit("go")
	eventually(t, func() bool { // the call is in the log before its program looks
		_, err := os.Stat(begun)
		return err == nil
	})
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.restart()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	res := h.results()
	if len(res) != 2 || res[0].Status != contract.ResultFailed || res[0].Attempt != 1 || res[1].Status != contract.ResultOK || res[1].Attempt != 2 {
		t.Fatalf("%+v", res)
	}
}

// TestARestartKeepsWhatTheUserWroteIntoTheDocument shows that a run's document ends with all that
// the user wrote before, between and after restarts, and is otherwise up to date, although the new
// process does not know what the old one rendered.
func TestARestartKeepsWhatTheUserWroteIntoTheDocument(t *testing.T) {
	h := newHouse(t)
	reached, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.model.gate = func(role contract.ActorKind, n int) {
		if role == contract.KindDirector && n == 1 {
			once.Do(func() { close(reached) })
			<-hold
		}
	}
	saw := ""
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("p", "revise_plan", m{"objective": "First objective", "plan": []m{{"text": "one"}, {"text": "two"}}}))
		case 1:
			return parts(use("p2", "revise_plan", m{"objective": "Second objective", "plan": []m{{"text": "one", "status": "done"}, {"text": "two"}}}))
		default:
			saw = textOf(req)
			return parts(use("r", "report", m{"status": "done", "summary": "All of it."}))
		}
	}
	run := h.submit("plan it")
	id := contract.DeriveID(run, "document")
	<-reached
	eventually(t, func() bool {
		doc, err := h.docs.Get(t.Context(), id)
		return err == nil && strings.Contains(doc.Body, "First objective")
	})
	h.docs.edit(id, func(body string) string {
		return strings.Replace(body, "- [ ] two\n", "- [ ] two, but gently\n", 1) + "\nDo not touch the logo.\n"
	})
	h.sleep()
	h.docs.edit(id, func(body string) string { return body + "\n## Mine\n\nwhile it slept\n" })
	close(hold)
	h.wrap = nil
	h.wake()
	if err := h.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.report(run)
	doc := must(h.docs.Get(t.Context(), id))
	h.quiet()
	for _, want := range []string{"- [ ] two, but gently\n", "Do not touch the logo.", "## Mine\n\nwhile it slept\n", "Second objective", "**done**", "All of it."} {
		if !strings.Contains(doc.Body, want) {
			t.Errorf("%q is missing from\n%s", want, doc.Body)
		}
	}
	if strings.Contains(doc.Body, "First objective") || strings.Count(doc.Body, "## Plan") != 1 {
		t.Errorf("the document is not up to date:\n%s", doc.Body)
	}
	for _, want := range []string{"two, but gently", "Do not touch the logo.", "while it slept"} {
		if !strings.Contains(saw, want) {
			t.Errorf("the Director was not shown %q:\n%s", want, saw)
		}
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what is waited for does not come")
		}
	}
}

func TestATreeThatIsGoneStartsTheAttemptAnew(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	hold, asleep := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.model.gate = func(role contract.ActorKind, n int) {
		if role == contract.KindAssociate && n == 1 {
			first := false
			once.Do(func() { first = true })
			if first {
				close(hold)
				<-asleep
			}
		}
	}
	h.model.associate = steps(edit("c1"))
	run := h.submit("go")
	<-hold
	h.sleep()
	close(asleep)
	if err := os.RemoveAll(filepath.Join(h.ws.dir, "boxes")); err != nil {
		t.Fatal(err)
	}
	h.wake()
	if err := h.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	if res := h.results(); len(res) != 2 || res[1].Attempt != 2 {
		t.Fatalf("%+v", res)
	}
}

// TestDeathAfterEveryEvent shows that whenever the process dies, the run ends, each attempt has one
// result, the workspace holds all of the work or nothing of it, and nothing is left behind. With
// CHOIR_DEATHS=all, which make chaos sets, the process dies after every event. Otherwise it dies
// after the first event of each type, because TestDeathAtEachEdge has it die wherever an attempt
// changes its state.
func TestDeathAfterEveryEvent(t *testing.T) {
	for _, kind := range []string{"agent", "exec"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			died := map[string]bool{}
			for n, types := range dieAfter(t, kind, 1<<30) {
				if died[types] && os.Getenv("CHOIR_DEATHS") != "all" {
					continue
				}
				died[types] = true
				t.Run(fmt.Sprint(n+1, " ", types), func(t *testing.T) {
					t.Parallel()
					dieAfter(t, kind, n+1)
				})
			}
		})
	}
}

// dieAfter has a run die after its n-th append, and returns the types of the events of each append.
func dieAfter(t *testing.T, kind string, n int) []string {
	h := newHouse(t)
	if kind == "agent" {
		h.model.director = plan(agentTask)
		h.model.associate = steps(use("c0", "write", m{"overwrite": true, "path": "choiros/x.css", "content": "blue\n"}), edit("c1"), use("c2", "bash", m{"command": "bash workspace/a.sh"}))
	} else {
		h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}}, {"write": m{"path": "workspace/a.sh", "content": "echo two\n"}}}})
	}
	l := &mortal{dead: make(chan struct{})}
	l.left.Store(int64(n))
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.wake()
	l.end = h.d.Closed()
	run := h.submit("go")
	for waiting := true; waiting; {
		select {
		case <-l.dead:
			h.restart()
			waiting = false
		case <-time.After(5 * time.Millisecond):
			waiting = h.d.Busy()
		}
	}
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone && rep.Status != contract.RunFailed {
		t.Fatalf("%+v", rep)
	}
	got := string(readFile(h.ws.live(), "workspace/a.sh")) + string(readFile(h.ws.live(), "choiros/x.css"))
	if got != "echo two\nblue\n" {
		t.Errorf("%s: the workspace holds %q\n%s", rep.Status, got, h.story())
	}
	seen := map[int]bool{}
	for _, r := range h.results() {
		if seen[r.Attempt] {
			t.Errorf("attempt %d has two results", r.Attempt)
		}
		seen[r.Attempt] = true
	}
	if n := len(h.events("run.reported")); n != 1 {
		t.Errorf("%d reports", n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.types
}

// TestWhatIsCheckedAfterARestartIsHeldAgainstItsBase shows that a process that did not begin an
// attempt checks its change against the base that the attempt began from: it needs that base for
// the tests that ran before the change, and for changes of which only the files' names are
// inspected.
func TestWhatIsCheckedAfterARestartIsHeldAgainstItsBase(t *testing.T) {
	for name, c := range map[string]struct {
		part contract.Part
		want contract.VerificationStatus
	}{
		"a test fails by a text":     {use("c1", "write", m{"overwrite": true, "path": "workspace/bad.txt", "content": "bad"}), contract.VerificationFail},
		"fewer tests than before it": {use("c1", "write", m{"overwrite": true, "path": "workspace/fewer.sh", "content": "true"}), contract.VerificationUnknown},
	} {
		for n := 4; n <= 5; n++ { // after the fourth event the change is merged, after the fifth it is being checked
			t.Run(fmt.Sprint(name, ", dead at transition ", n), func(t *testing.T) {
				t.Parallel()
				to := map[string]contract.AttemptState{}
				got, reached := deathAt(t, func(h *house) {
					h.model.director = plan(agentTask)
					h.model.associate = steps(c.part)
					put(h.ws.live(), "workspace/test_b.py", []byte(testsOfTexts))
				}, n, true, false, to, func(_, _ contract.AttemptState) {})
				if want := "verification " + string(c.want) + ","; !reached || !strings.Contains(got, want) {
					t.Errorf("reached %v: it came out as %s, not with %s", reached, got, want)
				}
			})
		}
	}
}

// testsOfTexts has a test that fails because of the content of a file, and another that runs only
// while some file does not exist.
const testsOfTexts = `import os, unittest

class B(unittest.TestCase):
    def test_nothing_is_bad(self):
        self.assertFalse(os.path.exists("bad.txt"))

if not os.path.exists("fewer.sh"):
    class C(unittest.TestCase):
        def test_one_more(self):
            pass
`
