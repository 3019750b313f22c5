package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// reaper is a log whose process dies at the n-th transition of an attempt:
// before it is stored, or right after. What was to be stored behind it in the same call is
// not: so a log looks that a version left which stored each by itself.
type reaper struct {
	ports.Log
	n     int
	after bool
	tell  func(from, to contract.AttemptState)
	dead  chan struct{}
	end   <-chan struct{} // of the dispatcher that died

	mu   sync.Mutex
	seen int
	at   map[string]contract.AttemptState // by subject
}

func (l *reaper) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.mu.Lock()
	gone := l.n > 0 && l.seen >= l.n
	mine := false
	for i, d := range drafts {
		if _, to := attempt.To(d.Data); to != "" && !gone && !mine {
			l.seen++
			l.tell(l.at[d.Subject], to)
			l.at[d.Subject] = to
			if mine = l.seen == l.n; mine {
				drafts = drafts[:i+1]
			}
		}
	}
	l.mu.Unlock()
	if mine && l.after {
		if _, err := l.Log.Append(context.WithoutCancel(ctx), drafts...); err != nil {
			return nil, err
		}
	}
	if mine {
		close(l.dead)
	}
	if mine || gone {
		return nil, lastWait(ctx, l.end)
	}
	return l.Log.Append(ctx, drafts...)
}

// lastWait is how an append of a process that died ends: with the process.
func lastWait(ctx context.Context, end <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-end:
		return errors.New("the process is gone")
	}
}

// deathAt lets a run die at its n-th transition, and, if again is set, once
// more at the first one after the restart. It returns what came of it.
func deathAt(t *testing.T, prepare func(h *house), n int, after, again bool, at map[string]contract.AttemptState, tell func(from, to contract.AttemptState)) (result string, reached bool) {
	h := newHouse(t)
	prepare(h)
	var l *reaper
	die := func(n int, after bool) {
		h.sleep()
		l = &reaper{n: n, after: after, tell: tell, dead: make(chan struct{}), at: at}
		h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
		h.wake()
		l.end = h.d.Closed()
	}
	die(n, after)
	run := h.submit("go")
	died := func() bool {
		choirtest.Eventually(t, time.Minute, "the run dies or ends", func() bool {
			select {
			case <-l.dead:
				return true
			default:
				return len(h.events("run.reported")) > 0
			}
		})
		select {
		case <-l.dead:
			return true
		default:
			return false
		}
	}
	if reached = died(); reached {
		if again {
			die(1, true)
			if err := h.d.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			died()
		}
		h.restart()
	}
	rep := h.report(run)
	h.quiet()
	counts := map[int]int{}
	for _, r := range h.results() {
		if counts[r.Attempt]++; counts[r.Attempt] > 1 {
			t.Errorf("attempt %d has two results", r.Attempt)
		}
	}
	all := h.results()
	last := all[len(all)-1]
	paths := ""
	for _, c := range last.Changes {
		paths += c.Path + " " + string(c.Op) + ","
	}
	return fmt.Sprintf("run %s %s, task %s, verification %s, published %v, changes %s, live %q, kept %d", rep.Status, rep.Verified, last.Status,
		last.Verification.Status, last.Head != "", paths, string(readFile(h.ws.live(), "workspace/a.sh"))+string(readFile(h.ws.live(), "choiros/x.css")), h.kept(last)), reached
}

// kept returns how many paths of a result's kept tree differ from its base; 0 if it has none.
func (h *house) kept(r contract.AssociateResult) int {
	h.t.Helper()
	if r.Kept == nil {
		return 0
	}
	if got, err := h.ws.Start(h.t.Context(), r.Kept.Commit); err != nil || got.Kept != r.Kept.Commit || got.Base != r.Kept.Base {
		h.t.Errorf("the log names the kept tree %+v; there is %+v, %v", r.Kept, got, err)
	}
	return r.Kept.Paths
}

// scenarios take every edge of an attempt: those of what goes well, of failed
// checks and of taking back, and those that only a failing machine takes, whose
// disk or boxes fail in them.
var scenarios = map[string]func(h *house){
	"good": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
	},
	"failed check": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, broken)
	},
	"repaired": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, broken, done, repaired)
	},
	"cancelled while it is sent back": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, broken)
		var checked atomic.Bool
		h.boxes.break_ = func(r ports.BoxRequest) error {
			switch {
			case r.Kind == contract.BoxVerify:
				checked.Store(true)
			case r.Kind == contract.BoxTask && checked.Load():
				_, _ = h.d.Command(h.t.Context(), contract.Person("u"), r.Run, contract.CommandCancel) // it may have been before a death
				return errors.New("no box can be had")
			}
			return nil
		}
	},
	"steps": func(h *house) {
		h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
			{"write": m{"path": "workspace/a.sh", "content": "echo two\n"}}}})
	},
	"failed step": func(h *house) {
		h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
			{"run": m{"argv": []string{"false"}}}}})
	},
	"moving tree": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		var once sync.Once
		h.ws.race = func() { once.Do(func() { put(h.ws.live(), "workspace/user.txt", []byte("mine\n")) }) }
	},
	"nothing changed": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(use("c0", "read", m{"path": "workspace/a.sh"}))
	},
	"history": func(h *house) {
		h.model.director = plan(m{"kind": "git", "goal": "look", "steps": []m{{"git": m{"op": "status"}}}})
	},
	"no checkpoint can be made": func(h *house) {
		h.model.director = plan(agentTask)
		h.ws.spoil("commits")
	},
	"no tree can be made": func(h *house) {
		h.model.director = plan(agentTask)
		h.ws.spoil("boxes")
	},
	"its boxes die": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
			if n == 0 {
				return parts(blue)
			}
			return parts(use(fmt.Sprint("c", n), "bash", m{"command": "true"}))
		}
		h.boxes.dies = "bash"
	},
	"cancelled while it is checked": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		h.boxes.break_ = func(r ports.BoxRequest) error {
			if r.Kind == contract.BoxVerify {
				_, _ = h.d.Command(h.t.Context(), contract.Person("u"), r.Run, contract.CommandCancel) // it may have been before a death
			}
			return nil
		}
	},
	"no box to check it in": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		h.boxes.break_ = func(r ports.BoxRequest) error {
			if r.Kind == contract.BoxVerify {
				return fault.New("boxes", fault.Unavailable, "", errors.New("no box can be had"))
			}
			return nil
		}
	},
	"it can't be merged": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		h.ws.spoil("merges")
	},
	"it can't be published": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		var once sync.Once
		h.ws.race = func() { once.Do(func() { h.ws.spoil("merges") }) }
	},
	"its publish gives no answer": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, edit("c1"))
		h.tune = func(o *dispatch.Options) { o.Times.TakeBack = 50 * time.Millisecond }
		h.ws.race = h.noAnswer()
	},
	"it can't be taken back": func(h *house) {
		h.model.director = plan(agentTask)
		h.model.associate = steps(blue, broken)
		h.tune = func(o *dispatch.Options) { o.Times.TakeBack = 50 * time.Millisecond }
		var once sync.Once
		h.ws.back = func() { once.Do(func() { h.ws.spoil("commits") }) }
	},
}

// What comes of each, undisturbed: only what was checked is verified, nothing of what failed is live,
// unless it can't be taken back, and what was written and not published is kept, if the disk takes it.
const (
	allOfIt   = "run done pass, task ok, verification pass, published true, changes choiros/x.css modified,workspace/a.sh modified,, live \"echo two\\nblue\\n\", kept 0"
	nothingOf = "run failed unknown, task failed, verification unknown, published false, changes , live \"echo one\\nred\\n\", kept "
	failedOf  = "run failed unknown, task failed, verification fail, published false, changes choiros/x.css modified,workspace/a.sh modified,, live "
	asItWas   = "changes , live \"echo one\\nred\\n\", kept "
)

var comesOut = map[string]string{
	"good": allOfIt, "repaired": allOfIt, "steps": allOfIt, "looked at": allOfIt, "looked at, and sent back": allOfIt, "looked at, a part that can't be taken any more": allOfIt,
	"looked at, a part":               "run done pass, task ok, verification pass, published true, changes workspace/a.sh modified,, live \"echo two\\nred\\n\", kept 2",
	"looked at, and discarded":        "run failed unknown, task cancelled, verification pass, published false, changes choiros/x.css modified,workspace/a.sh modified,, live \"echo one\\nred\\n\", kept 2",
	"cancelled while it is looked at": "run cancelled unknown, task cancelled, verification unknown, published false, " + asItWas + "2",
	"cancelled while it is sent back": "run cancelled unknown, task cancelled, verification fail, published false, " + asItWas + "2",
	"moving tree":                     allOfIt,
	"failed check":                    failedOf + `"echo one\nred\n", kept 2`, "it can't be taken back": failedOf + `"echo one\nblue\n", kept 0`,
	"its publish gives no answer": "run failed unknown, task failed, verification unknown, published false, changes choiros/x.css modified,workspace/a.sh modified,, live \"echo one\\nblue\\n\", kept 2",
	"failed step":                 nothingOf + "1", "its boxes die": nothingOf + "1", "no checkpoint can be made": nothingOf + "0", "no tree can be made": nothingOf + "0",
	"it can't be merged": nothingOf + "2", "it can't be published": nothingOf + "2",
	"cancelled while it is checked": "run cancelled unknown, task cancelled, verification unknown, published false, " + asItWas + "2",
	"nothing changed":               "run done unknown, task ok, verification unknown, published false, " + asItWas + "0",
	"history":                       "run done unknown, task ok, verification unknown, published true, " + asItWas + "0",
	"no box to check it in":         "run done unknown, task ok, verification unknown, published true, changes choiros/x.css modified,workspace/a.sh modified,, live \"echo two\\nblue\\n\", kept 0",
}

var (
	blue   = use("c0", "write", m{"overwrite": true, "path": "choiros/x.css", "content": "blue\n"})
	broken = use("c1", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "if then"})
	// repaired is what makes it right, and done the call with which a loop ends.
	repaired = use("c2", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "echo two\n"})
	done     = use("d", "finish", m{"status": "ok", "summary": "done"})
)

// cases are where the process is to die: at the n-th transition of a scenario.
type deathCase struct {
	edge     attempt.Edge
	scenario string
	n        int
}

// TestDeathAtEachEdge kills the process at each edge of an attempt's state
// machine: before it is stored, with all done that it would have told, and after,
// then once more after the next. What comes of it is what comes of an undisturbed
// run. The edges are the machine's own: one that no scenario takes fails. With
// CHOIR_DEATHS=all, as make chaos has it, every transition of every scenario is
// one to die at.
func TestDeathAtEachEdge(t *testing.T) {
	var mu sync.Mutex
	want := map[string]string{}
	at := map[attempt.Edge]deathCase{}
	var cases []deathCase
	t.Run("undisturbed", func(t *testing.T) {
		for name, prepare := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var passed []attempt.Edge
				got, _ := deathAt(t, prepare, 0, false, false, map[string]contract.AttemptState{}, func(from, to contract.AttemptState) {
					passed = append(passed, attempt.Edge{From: from, To: to})
				})
				mu.Lock()
				defer mu.Unlock()
				want[name] = got
				if got != comesOut[name] {
					t.Errorf("it came out as\n%s; want\n%s", got, comesOut[name])
				}
				for i, e := range passed {
					c := deathCase{e, name, i + 1}
					cases = append(cases, c)
					// The shortest way there, and of those the first by name.
					if was, ok := at[e]; !ok || c.n < was.n || c.n == was.n && name < was.scenario {
						at[e] = c
					}
				}
			})
		}
	})
	for _, e := range attempt.Edges() {
		if _, ok := at[e]; !ok {
			t.Errorf("nothing dies at the edge from %q to %s: add a scenario that takes it", e.From, e.To)
		}
	}
	if os.Getenv("CHOIR_DEATHS") != "all" {
		cases = slices.Collect(maps.Values(at))
	}
	for _, c := range cases {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%d, from %q to %s, after %v", c.scenario, c.n, c.edge.From, c.edge.To, after), func(t *testing.T) {
				t.Parallel()
				got, reached := deathAt(t, scenarios[c.scenario], c.n, after, after, map[string]contract.AttemptState{}, func(contract.AttemptState, contract.AttemptState) {})
				if !reached {
					t.Error("it did not come to that")
				}
				if got != want[c.scenario] {
					t.Errorf("it came out as\n%s; undisturbed:\n%s", got, want[c.scenario])
				}
			})
		}
	}
}

// TestTakingBackIsTriedUntilItIsDone: taking back that fails is tried again, across a
// restart too, and the result waits for it.
func TestTakingBackIsTriedUntilItIsDone(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(blue, broken)
	var once sync.Once
	h.ws.back = func() { once.Do(func() { h.ws.spoil("commits") }) }
	run := h.submit("go")
	h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
	if len(h.results()) != 0 || string(readFile(h.ws.live(), "choiros/x.css")) != "blue\n" {
		t.Fatalf("%+v, live %q", h.results(), readFile(h.ws.live(), "choiros/x.css"))
	}
	h.restart()
	h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWorking })
	h.ws.heal("commits")
	rep := h.report(run)
	h.quiet()
	res := h.results()
	if rep.Status != contract.RunFailed || len(res) != 1 || res[0].Verification.Status != contract.VerificationFail {
		t.Errorf("%+v\n%+v", rep, res)
	}
	if got := string(readFile(h.ws.live(), "workspace/a.sh")) + string(readFile(h.ws.live(), "choiros/x.css")); got != "echo one\nred\n" {
		t.Errorf("live %q", got)
	}
}

// TestWhatCantBeTakenBackIsToldAndKeepsNobodyFromWorking: the user reads why and
// what to do, other runs and tasks go on, and once the run is cancelled what is
// live stays, which its result and its report say.
func TestWhatCantBeTakenBackIsToldAndKeepsNobodyFromWorking(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Runs, o.Parallel, o.Times.TakeBack = 1, 1, time.Hour }
	h.sleep()
	h.wake()
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "other") {
			return plan(m{"kind": "git", "goal": "look", "steps": []m{{"git": m{"op": "status"}}}})(n, req)
		}
		return plan(agentTask)(n, req)
	}
	h.model.associate = steps(blue, broken)
	var once sync.Once
	h.ws.back = func() { once.Do(func() { h.ws.spoil("commits") }) }
	run := h.submit("go")
	moved := h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting }).(*contract.RunMoved)
	for _, want := range []string{"What “Make a.sh say two” showed live can't be taken back: ", "not a directory", "“Before: Make a.sh say two” in Time Travel", "Cancel the run"} {
		if !strings.Contains(moved.Reason, want) {
			t.Errorf("the user is not told %q: %s", want, moved.Reason)
		}
	}
	choirtest.Eventually(t, time.Minute, "the computer is idle", func() bool { return !h.d.Busy() })
	if rep := h.report(h.submit("other")); rep.Status != contract.RunDone {
		t.Errorf("meanwhile: %+v", rep)
	}
	if n := len(h.results()); n != 1 {
		t.Errorf("%d results, want the other run's", n)
	}
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	res := h.results()[1]
	for what, text := range map[string]string{"report": rep.Summary, "result": res.Summary} {
		if !strings.Contains(text, "could not be taken back") || !strings.Contains(text, "restore the checkpoint “Before: Make a.sh say two” in Time Travel") {
			t.Errorf("the %s does not say what is left: %s", what, text)
		}
	}
	if rep.Verified == contract.VerificationPass || res.Status != contract.ResultFailed || res.Verification.Status != contract.VerificationFail {
		t.Errorf("%+v\n%+v", rep, res)
	}
	left := 0
	for _, p := range h.events("attempt.moved") {
		if m := p.(*contract.AttemptMoved); m.State == contract.AttemptLeft {
			left++
		}
	}
	if got := string(readFile(h.ws.live(), "choiros/x.css")); left != 1 || got != "blue\n" {
		t.Errorf("left %d times, live %q", left, got)
	}
}

// TestTakingBackSaysWhatItCouldNot: paths that can't be taken back, for example because of
// their permissions, are named with the reason.
func TestTakingBackSaysWhatItCouldNot(t *testing.T) {
	h := newHouse(t)
	h.ws.keeps = []view.Kept{{Path: "choiros/x.css", Reason: "its permissions keep it from being changed"}}
	h.model.director = plan(agentTask)
	h.model.associate = steps(blue, broken)
	h.report(h.submit("go"))
	h.quiet()
	if s := h.results()[0].Summary; !strings.Contains(s, "Not taken back, so it may hold what the task wrote: choiros/x.css (its permissions keep it from being changed).") {
		t.Errorf("the result says %s", s)
	}
}

// TestTakingBackHasItsTimeWhenItsTurnComes: the time limit starts only when other tasks'
// publishes have let it begin.
func TestTakingBackHasItsTimeWhenItsTurnComes(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Times.CleanUp = 300 * time.Millisecond }
	h.sleep()
	h.wake()
	reached, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.ws.race = func() { once.Do(func() { close(reached); <-hold }) } // another's publish, which takes its time
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "other") {
			return plan(m{"kind": "exec", "goal": "publish", "steps": []m{{"write": m{"path": "workspace/b.txt", "content": "b\n"}}}})(n, req)
		}
		return plan(agentTask)(n, req)
	}
	checked := make(chan struct{})
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 1 {
			<-checked
			return parts(use("f", "finish", m{"status": "failed", "summary": "No."}))
		}
		return parts(blue)
	}
	run := h.submit("go")
	h.told(run, "tool.returned", nil)
	other := h.submit("other")
	<-reached
	close(checked)
	h.told(run, "attempt.moved", func(p contract.Payload) bool { return p.(*contract.AttemptMoved).State == contract.AttemptTakingBack })
	gone, cancel := context.WithTimeout(t.Context(), 2*300*time.Millisecond) // more than it has once its turn comes
	defer cancel()
	<-gone.Done()
	close(hold)
	h.report(other)
	h.report(run)
	h.quiet()
	h.ws.mu.Lock()
	defer h.ws.mu.Unlock()
	if got := string(readFile(h.ws.live(), "choiros/x.css")); got != "red\n" || h.ws.inverted != 1 {
		t.Errorf("live %q after %d tries", got, h.ws.inverted)
	}
}

// noAnswer begins a task's publish and makes its outcome unknown.
func (h *house) noAnswer() func() {
	return sync.OnceFunc(func() {
		asked := h.events("task.requested")[0].(*contract.TaskRequested).Task
		must(h.log.Append(h.t.Context(), contract.Draft{Actor: contract.System(), Type: "publish.started", Run: asked.Run, Task: asked.ID,
			Data: contract.PublishStarted{Publish: contract.NewID(), Base: strings.Repeat("1", 40), Commit: strings.Repeat("2", 40), Paths: 1}}))
		h.ws.spoil("merges")
	})
}

// TestAPublishWithoutAnAnswerIsLeft: it is not asked for without end. The user
// who cancels the run, or the time, leaves it as it is; the result says what is not known
// and how to go back, and the slot is free.
func TestAPublishWithoutAnAnswerIsLeft(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Runs, o.Times.TakeBack = 1, time.Hour }
	h.sleep()
	h.wake()
	h.model.director = plan(agentTask)
	h.model.associate = steps(blue, edit("c1"))
	h.ws.race = h.noAnswer()
	run := h.submit("go")
	h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	res := h.results()
	if len(res) != 1 || res[0].Status == contract.ResultOK || res[0].Verification.Status != contract.VerificationUnknown {
		t.Fatalf("%+v", res)
	}
	for what, text := range map[string]string{"result": res[0].Summary, "report": rep.Summary} {
		if !strings.Contains(text, "was published is not known") || !strings.Contains(text, "restore the checkpoint “Before: ") {
			t.Errorf("the %s does not say what is not known and how to go back: %s", what, text)
		}
	}
}

// TestAPublishWithoutAnAnswerIsToldAndKeepsNobodyFromWorking: once it was begun
// it will be applied, so it is asked for until it has been; the user reads that,
// and others go on.
func TestAPublishWithoutAnAnswerIsToldAndKeepsNobodyFromWorking(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Runs = 1 }
	h.sleep()
	h.wake()
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "other") {
			return plan()(1, req)
		}
		return plan(agentTask)(n, req)
	}
	h.model.associate = steps(blue, edit("c1"))
	h.ws.race = h.noAnswer()
	run := h.submit("go")
	moved := h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting }).(*contract.RunMoved)
	if !strings.Contains(moved.Reason, "Whether the work of “Make a.sh say two” was published is not known") {
		t.Errorf("the user is told %s", moved.Reason)
	}
	h.report(h.submit("other"))
	if len(h.results()) != 0 {
		t.Error("it was given up, though it was begun")
	}
	h.ws.heal("merges")
	if rep := h.report(run); rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass {
		t.Errorf("%+v", rep)
	}
	h.quiet()
	if n := len(h.results()); n != 1 {
		t.Errorf("%d results", n)
	}
}
