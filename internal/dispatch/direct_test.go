package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/test/choirtest"
)

// newDirectHouse is a house in which a small prompt goes to one Associate at once.
func newDirectHouse(t *testing.T) *house {
	t.Helper()
	h := newHouse(t)
	h.direct(30)
	return h
}

// direct starts a dispatcher with another bound of what is small.
func (h *house) direct(words int) {
	h.sleep()
	h.tune = func(o *dispatch.Options) { o.DirectWords = words }
	h.wake()
}

// noDirector fails the test if a Director's model is asked.
func noDirector(t *testing.T) func(int, contract.TurnRequest) []contract.Part {
	return func(_ int, req contract.TurnRequest) []contract.Part {
		t.Errorf("a Director is asked: %s", saidTo(req))
		return plan()(1, req)
	}
}

func (h *house) requests() int {
	h.model.mu.Lock()
	defer h.model.mu.Unlock()
	return len(h.model.seen)
}

// why returns why the only run of the log went to one Associate at once.
func (h *house) why() string {
	h.t.Helper()
	started := h.events("run.started")
	if len(started) != 1 {
		h.t.Fatalf("%d runs began", len(started))
	}
	return started[0].(*contract.RunStarted).Direct
}

// TestASmallPromptGoesToOneAssociateAtOnce shows that a small prompt is one task under the usual contract, and that
// its run's report follows from the result, without a Director's box or turn; and that one that changed nothing says so.
func TestASmallPromptGoesToOneAssociateAtOnce(t *testing.T) {
	h := newDirectHouse(t)
	h.model.director = noDirector(t)
	h.model.associate = steps(edit("c1"))
	rep := h.report(h.submit("Make a.sh say two"))
	h.quiet()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass || rep.Checkpoint == "" {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	for _, want := range []string{"Did it.", "Changed: workspace/a.sh (modified).", "Checked: "} {
		if !strings.Contains(rep.Summary, want) {
			t.Errorf("the report lacks %q: %s", want, rep.Summary)
		}
	}
	if n := h.requests(); n != 2 {
		t.Errorf("%d requests of a model; want 2", n)
	}
	if slices.Contains(h.boxes.kinds, contract.BoxDirector) {
		t.Error("a Director's box was opened")
	}
	if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo two\n" {
		t.Errorf("live: %q", got)
	}
	if why := h.why(); !strings.Contains(why, "words: 4 of at most 30") {
		t.Errorf("the log says %q", why)
	}
	task := h.events("task.requested")[0].(*contract.TaskRequested).Task
	if task.Goal != "Make a.sh say two" || task.Kind != contract.KindAgent || task.Egress.Profile != contract.EgressNone || task.Verify.Profile != contract.VerifyStandard || slices.Contains(task.Tools, "model") {
		t.Errorf("the task is %+v", task)
	}
	for _, p := range h.events("run.moved") {
		if m := p.(*contract.RunMoved); m.Status == contract.RunPlanning {
			t.Errorf("a run that nobody plans is planning: %+v", m)
		}
	}

	h.model.associate = func(_ int, req contract.TurnRequest) []contract.Part {
		if said := saidTo(req); !strings.Contains(said, "Asked: Make a.sh say two") {
			t.Errorf("the Associate does not know of the run before: %s", said)
		}
		return parts(use("f", "finish", m{"status": "ok", "summary": "It says two."}))
	}
	rep = h.report(h.submit("What does it say?"))
	if rep.Status != contract.RunDone || rep.Verified == contract.VerificationPass || !strings.Contains(rep.Summary, "It says two.") || !strings.Contains(rep.Summary, "Nothing was changed.") {
		t.Errorf("an answer is reported as %+v", rep)
	}
	h.quiet()
}

// TestWhatNothingChecksIsNotCalledVerified shows that what could not be checked, since nothing checks it, is reported
// as done and not verified, with the reason.
func TestWhatNothingChecksIsNotCalledVerified(t *testing.T) {
	h := newDirectHouse(t)
	for _, p := range []string{"requirements.txt", "workspace/requirements.txt", "workspace/test_a.py"} {
		if err := os.Remove(filepath.Join(h.ws.live(), p)); err != nil {
			t.Fatal(err)
		}
	}
	h.model.director = noDirector(t)
	h.model.associate = steps(use("c1", "write", m{"path": "notes/a.txt", "content": "hello\n"}))
	rep := h.report(h.submit("Write a note"))
	h.quiet()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationUnknown || !strings.Contains(rep.Summary, "is not verified: no check was found") {
		t.Errorf("%+v\n%s", rep, h.story())
	}
}

// TestWhatIsNotSmallIsPlanned is the rule of what goes to one Associate at once, and what a prompt's user decides.
func TestWhatIsNotSmallIsPlanned(t *testing.T) {
	long := strings.Repeat("word ", 31)
	for name, c := range map[string]struct {
		prompt dispatch.Prompt
		words  int
		direct bool
	}{
		"small":                        {dispatch.Prompt{Text: "Fix the test. It is red."}, 30, true},
		"as many words as may be":      {dispatch.Prompt{Text: strings.TrimSpace(strings.Repeat("word ", 30))}, 30, true},
		"more words":                   {dispatch.Prompt{Text: long}, 30, false},
		"lines":                        {dispatch.Prompt{Text: "Fix:\n- a\n- b"}, 30, false},
		"three sentences":              {dispatch.Prompt{Text: "Fix a. Then b! Then c."}, 30, false},
		"names with dots":              {dispatch.Prompt{Text: "Rename a.b.c.d.go to e.f.go, v1.2.3 too"}, 30, true},
		"a script without spaces":      {dispatch.Prompt{Text: strings.Repeat("直", 62)}, 30, false},
		"small in such a script":       {dispatch.Prompt{Text: "修复测试"}, 30, true},
		"never by itself":              {dispatch.Prompt{Text: "Fix it"}, 0, false},
		"its user wants a plan":        {dispatch.Prompt{Text: "Fix it", Route: contract.RoutePlan}, 30, false},
		"its user wants no plan":       {dispatch.Prompt{Text: long, Route: contract.RouteDirect}, 30, true},
		"its user wants none, never":   {dispatch.Prompt{Text: "Fix it", Route: contract.RouteDirect}, 0, true},
		"its user wants none of lines": {dispatch.Prompt{Text: "Fix:\n- a\n- b", Route: contract.RouteDirect}, 30, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.direct(c.words)
			h.model.director, h.model.associate = plan(agentTask), steps(edit("c1"))
			c.prompt.By = contract.Person("u")
			run, _, err := h.d.Submit(t.Context(), c.prompt)
			if err != nil {
				t.Fatal(err)
			}
			h.report(run)
			h.quiet()
			if why := h.why(); (why != "") != c.direct || slices.Contains(h.boxes.kinds, contract.BoxDirector) == c.direct {
				t.Errorf("it went to one Associate at once: %q", why)
			}
		})
	}
}

// TestAPromptThatContinuesIsPlanned shows that its Director is told of the run before, so nobody can want it otherwise.
func TestAPromptThatContinuesIsPlanned(t *testing.T) {
	h := newDirectHouse(t)
	h.model.director, h.model.associate = noDirector(t), steps(edit("c1"))
	first := h.submit("Make it two")
	h.report(first)
	h.model.director = plan(agentTask)
	h.model.associate = steps()
	prompt := dispatch.Prompt{By: contract.Person("u"), Text: "Go on", Continues: first}
	second, _, err := h.d.Submit(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	h.report(second)
	h.quiet()
	if !slices.Contains(h.boxes.kinds, contract.BoxDirector) {
		t.Error("it was not planned")
	}
	prompt.Route = contract.RouteDirect
	if _, _, err := h.d.Submit(t.Context(), prompt); err == nil || !strings.Contains(err.Error(), "is planned") {
		t.Errorf("it may be sent to one Associate: %v", err)
	}
}

// TestADirectorTakesOver shows that whatever of the one task is not a verified end goes to a Director, who is told of
// it, goes on from what was kept, and is the one who reports.
func TestADirectorTakesOver(t *testing.T) {
	two := use("c9", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "echo two\n"})
	for name, c := range map[string]struct {
		first  func(int, contract.TurnRequest) []contract.Part
		break_ func(*house)
		why    string
		kept   bool
	}{
		"it needs a plan": {func(n int, _ contract.TurnRequest) []contract.Part {
			if n == 0 {
				return parts(blue)
			}
			return parts(use("f", "finish", m{"status": "failed", "summary": "This needs more than me.", "suggested_next": "Plan it."}))
		}, nil, "ended as failed: This needs more than me.", true},
		"it needs an answer": {func(n int, _ contract.TurnRequest) []contract.Part {
			if n == 0 {
				return parts(blue)
			}
			return parts(use("f", "finish", m{"status": "needs_input", "summary": "Which?", "question": "Red or blue?"}))
		}, nil, "its Associate asks: Red or blue?", true},
		"its checks fail":     {steps(blue, broken, done, done), nil, "ended as failed: Verification failed", true},
		"its model is silent": {func(int, contract.TurnRequest) []contract.Part { return parts(contract.Part{Text: "hm"}) }, nil, "ended as failed", false},
		"no check can be made": {steps(blue, edit("c1")), func(h *house) {
			h.boxes.break_ = func(r ports.BoxRequest) error {
				if r.Kind == contract.BoxVerify && len(h.results()) == 0 {
					return fmt.Errorf("no box can be had")
				}
				return nil
			}
		}, "is not verified", false},
		"its user wrote into the document": {nil, nil, "its user wrote into the run's document", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newDirectHouse(t)
			if c.break_ != nil {
				c.break_(h)
			}
			first := c.first
			if first == nil {
				first = h.writesMeanwhile("Only in lower case, please.")
			}
			h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
				if strings.Contains(saidTo(req), "Go on from there, please") {
					return steps(two)(n, req)
				}
				return first(n, req)
			}
			var opening string
			h.model.director = goesOnFromKept(&opening)
			rep := h.report(h.submit("Make a.sh say two"))
			h.quiet()
			if rep.Status != contract.RunDone || !strings.HasPrefix(rep.Summary, "The Director says it is done.") {
				t.Fatalf("%+v\n%s", rep, h.story())
			}
			if !strings.Contains(opening, "## The task before any plan") || !strings.Contains(opening, "> task ") {
				t.Errorf("the Director is not told of the task: %s", opening)
			}
			res := h.results()
			if len(res) != 2 || (res[0].Kept != nil) != c.kept || keptLine.MatchString(opening) != c.kept {
				t.Fatalf("%+v\n%s", res, opening)
			}
			if c.first == nil && !strings.Contains(opening, "Only in lower case, please.") {
				t.Errorf("the Director is not told what its user wrote: %s", opening)
			}
			if c.kept && string(readFile(h.ws.live(), "choiros/x.css")) != "blue\n" {
				t.Error("what the Associate wrote is lost")
			}
			if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo two\n" {
				t.Errorf("live: %q", got)
			}
			if !h.tookOver(c.why) {
				t.Errorf("the log does not say that a Director takes it over because %s:\n%s", c.why, h.story())
			}
		})
	}
}

// goesOnFromKept is a Director that takes a run over, from the tree that was kept if one was, and what it is told first.
func goesOnFromKept(opening *string) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, req contract.TurnRequest) []contract.Part {
		if n > 0 {
			return parts(use("d1", "report", m{"status": "done", "summary": "The Director says it is done."}))
		}
		*opening = saidTo(req)
		task := agent("Go on from there, please")
		if kept := keptLine.FindStringSubmatch(*opening); kept != nil {
			task["base"] = kept[1]
		}
		return parts(use("d0", "delegate", m{"tasks": []m{task}}))
	}
}

// tookOver reports whether the log says that a Director took a run over, and why.
func (h *house) tookOver(why string) bool {
	return slices.ContainsFunc(h.events("run.moved"), func(p contract.Payload) bool {
		m := p.(*contract.RunMoved)
		return m.Status == contract.RunPlanning && strings.Contains(m.Reason, "a Director takes it over: ") && strings.Contains(m.Reason, why)
	})
}

// writesMeanwhile is an Associate during whose work its user writes into the run's document.
func (h *house) writesMeanwhile(words string) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			id := h.events("run.started")[0].(*contract.RunStarted).Document
			choirtest.Eventually(h.t, time.Minute, "the run has a document", func() bool { _, err := h.docs.Get(h.t.Context(), id); return err == nil })
			h.docs.edit(id, func(body string) string { return body + "\n" + words + "\n" })
		}
		return steps(edit("c1"))(n, req)
	}
}

// TestAHandedOverRunIsJudgedByAllOfIt shows that a Director can't call done what the one task did not do, if nothing
// was done afterwards, or only looked at although something had been written.
func TestAHandedOverRunIsJudgedByAllOfIt(t *testing.T) {
	for name, tasks := range map[string][]m{"nothing": nil, "only looked": {{"kind": "inspect", "goal": "Look", "tools": []string{"read"}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newDirectHouse(t)
			h.model.director = plan(tasks...)
			if tasks == nil {
				h.model.director = func(int, contract.TurnRequest) []contract.Part {
					return parts(use("d1", "report", m{"status": "done", "summary": "It is done."}))
				}
			}
			h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
				if strings.Contains(saidTo(req), "\nLook\n") {
					return steps()(n, req)
				}
				return steps(blue, use("f", "finish", m{"status": "failed", "summary": "I can't."}))(n, req)
			}
			rep := h.report(h.submit("Make it blue"))
			h.quiet()
			if rep.Status != contract.RunFailed {
				t.Errorf("%+v\n%s", rep, h.story())
			}
		})
	}
}

// TestWordsThatNobodyHeardGoToADirector shows that what the user says behind the last turn of the one task is not lost.
func TestWordsThatNobodyHeardGoToADirector(t *testing.T) {
	for name, late := range map[string]bool{"heard": false, "not heard": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newDirectHouse(t)
			var once sync.Once
			var run string
			ready := make(chan struct{})
			h.model.gate = func(role contract.ActorKind, n int) {
				<-ready
				if role == contract.KindAssociate && (n == 1) == late {
					once.Do(func() {
						if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Say three instead"); err != nil {
							t.Error(err)
						}
					})
				}
			}
			h.model.associate = steps(edit("c1"))
			var heard bool
			h.model.director = func(_ int, req contract.TurnRequest) []contract.Part {
				heard = strings.Contains(saidTo(req), "The user says (1): Say three instead")
				return parts(use("d1", "report", m{"status": "failed", "summary": "Not three."}))
			}
			run = h.submit("Make a.sh say two")
			close(ready)
			rep := h.report(run)
			h.quiet()
			if heard != late || (rep.Status == contract.RunDone) == late {
				t.Errorf("a Director heard it: %v; %+v\n%s", heard, rep, h.story())
			}
		})
	}
}

// TestADirectRunGoesOnAsItBegan kills the process behind each of its appends. What the log says of the run decides, and
// not the configuration of the process that goes on, which would have it planned: what comes of it is what comes of an
// undisturbed run, in which a Director takes over or does not.
func TestADirectRunGoesOnAsItBegan(t *testing.T) {
	for name, hands := range map[string]bool{"it ends well": false, "a Director takes over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := dieDirect(t, hands, 1<<30)
			seen := map[string]bool{}
			for n, at := range types {
				if n == 0 || seen[at] { // before run.started nothing is decided
					continue
				}
				seen[at] = true
				t.Run(fmt.Sprint(n+1, " ", at), func(t *testing.T) {
					t.Parallel()
					dieDirect(t, hands, n+1)
				})
			}
		})
	}
}

func dieDirect(t *testing.T, hands bool, n int) []string {
	h := newDirectHouse(t)
	h.model.director = noDirector(t)
	first := steps(blue, edit("c1"))
	if hands {
		first = steps(blue, use("f", "finish", m{"status": "failed", "summary": "I can't."}))
		h.model.director = plan(agent("Go on from there, please"))
	}
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if strings.Contains(saidTo(req), "Go on from there, please") {
			return steps(use("c3", "write", m{"overwrite": true, "path": "choiros/x.css", "content": "blue\n"}), edit("c4"))(n, req)
		}
		return first(n, req)
	}
	l := &mortal{dead: make(chan struct{})}
	l.left.Store(int64(n))
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.wake()
	l.end = h.d.Closed()
	run := h.submit("Make a.sh say two")
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		for e, err := range h.log.Follow(ctx, 0) {
			if err != nil || e.Type == "run.reported" {
				return
			}
		}
	}()
	select {
	case <-l.dead:
		h.tune = nil // the process that goes on would plan everything
		h.restart()
	case <-ended:
	}
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass {
		t.Errorf("%+v\n%s", rep, h.story())
	}
	if got := string(readFile(h.ws.live(), "workspace/a.sh")) + string(readFile(h.ws.live(), "choiros/x.css")); got != "echo two\nblue\n" {
		t.Errorf("live: %q", got)
	}
	if got := strings.Contains(rep.Summary, "Changed: choiros/x.css (modified), workspace/a.sh (modified)."); got == hands {
		t.Errorf("the report: %s", rep.Summary)
	}
	tasks := 1
	if hands {
		tasks = 2
	}
	if got := len(h.events("task.requested")); got != tasks || h.why() == "" || len(h.events("run.reported")) != 1 {
		t.Errorf("%d tasks\n%s", got, h.story())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.types
}

// TestSiblingsThatOverlapSaySo shows that where tasks of one delegation changed the same paths, the log says so before
// the later one is published, its Director is told, and tasks whose paths differ say nothing.
func TestSiblingsThatOverlapSaySo(t *testing.T) {
	h := newHouse(t)
	var told string
	one, two := agent("Write it as one"), agent("Write it as two")
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		told = saidTo(req)
		return plan(one, two, agent("Write something else"))(n, req)
	}
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		said, path, content := saidTo(req), "workspace/a.sh", "echo one more\n"
		switch {
		case strings.Contains(said, "Write it as two"):
			content = "echo two\n"
		case strings.Contains(said, "something else"):
			path = "choiros/x.css"
		}
		return steps(use("c1", "write", m{"overwrite": true, "path": path, "content": content}))(n, req)
	}
	h.report(h.submit("go"))
	h.quiet()
	byTask := map[string]contract.AssociateResult{}
	for _, r := range h.results() {
		byTask[r.Task] = r
	}
	var overlapping []string
	for _, r := range byTask {
		for _, o := range r.Overlaps {
			overlapping = append(overlapping, r.Task)
			if other, ok := byTask[o.Task]; !ok || o.Task == r.Task || !slices.Equal(o.Paths, []string{"workspace/a.sh"}) || len(other.Changes) != 1 || other.Changes[0].Path != "workspace/a.sh" {
				t.Errorf("task %s overlaps with %+v", r.Task, o)
			}
		}
	}
	if len(overlapping) == 0 {
		t.Fatalf("no task says that it overlaps\n%s", h.story())
	}
	if !strings.Contains(told, "changed what task ") {
		t.Errorf("the Director is told %s", told)
	}
	for _, task := range overlapping { // the last merge of the attempt knew it
		merged := false
		for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
			p := must(h.log.Payload(t.Context(), e))
			if a, ok := p.(*contract.AttemptMoved); ok && e.Task == task && a.State == contract.AttemptMerged {
				merged = len(a.Result.Overlaps) > 0
			}
		}
		if !merged {
			t.Errorf("the merge of task %s did not say so", task)
		}
	}
}
