package dispatch_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
)

// taskBoxes keeps what task boxes are opened with.
type taskBoxes struct {
	mu  sync.Mutex
	all []ports.BoxRequest
}

func (b *taskBoxes) keep(r ports.BoxRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Kind == contract.BoxTask {
		b.all = append(b.all, r)
	}
	return nil
}

func (b *taskBoxes) last(t *testing.T) ports.BoxRequest {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		t.Fatal("no task box was opened")
	}
	return b.all[len(b.all)-1]
}

// asks asks the host for the model as the guest of a task's box does.
func asks(r ports.BoxRequest) (int, string) {
	w := httptest.NewRecorder()
	r.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://box/model/v1/messages", strings.NewReader("{}")))
	return w.Code, w.Body.String()
}

// TestProgramsAskTheModelWhereItWasGranted: for as long as the box lives, and while the run goes on; every
// box has a token of its own.
func TestProgramsAskTheModelWhereItWasGranted(t *testing.T) {
	h := newHouse(t)
	var opened taskBoxes
	h.boxes.break_ = opened.keep
	granted := m{"kind": "agent", "goal": "Ask a program", "tools": []string{"read", "edit", "model"}}
	h.model.director = plan(granted)
	told := false
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if n > 0 {
			return steps(edit("c1"))(n, req)
		}
		told = prompted(req, "ANTHROPIC_BASE_URL")
		box := opened.last(t)
		if status, out := asks(box); status != http.StatusOK || out != "the model answers /v1/messages for "+box.ModelToken {
			t.Errorf("a box that was granted the model is answered %d %s", status, out)
		}
		command := func(c contract.RunCommand) {
			if _, err := h.d.Command(t.Context(), contract.Person("u"), box.Run, c); err != nil {
				t.Error(err)
			}
		}
		command(contract.CommandPause)
		if status, out := asks(box); status != http.StatusServiceUnavailable || !strings.Contains(out, "paused") {
			t.Errorf("while its run is paused a box is answered %d %s", status, out)
		}
		command(contract.CommandResume)
		return steps(edit("c1"))(n, req)
	}
	if rep := h.report(h.submit("go")); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	first := opened.last(t)
	if !told {
		t.Error("the task's model is not told what programs were granted")
	}
	if status, out := asks(first); status != http.StatusGone {
		t.Errorf("after its end a box is answered %d %s", status, out)
	}
	h.report(h.submit("go again"))
	h.quiet()
	if second := opened.last(t); len(first.ModelToken) < 40 || second.ModelToken == first.ModelToken {
		t.Errorf("the tokens of two boxes are %q and %q", first.ModelToken, second.ModelToken)
	}
}

// TestWithoutTheGrantNoProgramAsks: a box that was not granted the model has no token and no answer, and no
// task can be granted it that runs no programs.
func TestWithoutTheGrantNoProgramAsks(t *testing.T) {
	h := newHouse(t)
	var opened taskBoxes
	h.boxes.break_ = opened.keep
	h.model.director = plan(agentTask)
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if box := opened.last(t); n == 0 {
			status, out := asks(box)
			if status == http.StatusOK {
				t.Errorf("a box without the grant is answered %s", out)
			} else if status != http.StatusForbidden || !strings.Contains(out, "was not granted the model") || box.ModelToken != "" {
				t.Errorf("a box without the grant, with the token %q, is answered %d %s", box.ModelToken, status, out)
			}
		}
		if prompted(req, "ANTHROPIC_BASE_URL") {
			t.Error("the task's model is told of what programs were not granted")
		}
		return steps(edit("c1"))(n, req)
	}
	h.report(h.submit("go"))
	h.quiet()

	said := ""
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("d0", "delegate", m{"tasks": []m{{"kind": "inspect", "goal": "Look", "tools": []string{"read", "model"}}}}))
		case 1:
			said = req.Messages[len(req.Messages)-1].Parts[0].Return.Content
			return parts(use("d1", "delegate", m{"tasks": []m{{"kind": "exec", "goal": "Run", "tools": []string{"model"}, "steps": []m{{"run": m{"argv": []string{"true"}}}}}}}))
		}
		return parts(use("d2", "report", m{"status": "done", "summary": "Done."}))
	}
	rep := h.report(h.submit("look and run"))
	h.quiet()
	if !strings.Contains(said, "no task of kind inspect runs") {
		t.Errorf("the Director reads %q", said)
	}
	if rep.Status != contract.RunDone || opened.last(t).ModelToken == "" {
		t.Errorf("fixed steps were not granted the model: %+v\n%s", rep, h.story())
	}
}

// scopes keeps for whom the model was asked, or a way to it was made.
type scopes struct {
	*script
	mu  sync.Mutex
	all map[string]ports.ModelScope
}

func (s *scopes) keep(who string, scope ports.ModelScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if scope.Task != "" {
		s.all[who] = scope
	}
}

func (s *scopes) Inward(scope ports.ModelScope, g ports.ModelGrant) http.Handler {
	s.keep("program", scope)
	return s.script.Inward(scope, g)
}

func (s *scopes) Handler(scope ports.ModelScope) http.Handler {
	s.keep("loop", scope)
	return s.script.Handler(scope)
}

func (s *scopes) Ask(ctx context.Context, scope ports.ModelScope, req contract.TurnRequest) (contract.Turn, error) {
	s.keep("judge", scope)
	return s.script.Ask(ctx, scope, req)
}

// TestWhoeverAsksForATaskAsksTheChosenModel shows that the loop of a task, the programs in its box and the judge of what it
// cites are all answered by the model that the run's user chose while the run went on.
func TestWhoeverAsksForATaskAsksTheChosenModel(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	s := &scopes{script: h.model, all: map[string]ports.ModelScope{}}
	h.tune = func(o *dispatch.Options) { o.Models = s }
	h.wake()
	h.model.director = plan(m{"kind": "agent", "goal": "Ask a program", "tools": []string{"edit", "model"}}, m{"kind": "research", "goal": "Find out", "tools": []string{"read"}})
	run := make(chan string, 1)
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if !prompted(req, "Find out") {
			return steps(edit("c1"))(n, req)
		}
		if n == 0 {
			if _, err := h.d.Switch(t.Context(), contract.Person("u"), <-run, "script/one"); err != nil {
				t.Error(err)
			}
		}
		return steps(cites("c5", "workspace/test_a.py", "The test runs bash.", `subprocess.run(["bash", "-n", "a.sh"])`))(n, req)
	}
	id := h.submit("go")
	run <- id
	h.report(id)
	h.quiet()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, who := range []string{"loop", "program", "judge"} {
		scope, asked := s.all[who]
		if !asked || scope.Chosen == nil {
			t.Errorf("the %s asks on behalf of %+v", who, scope)
			continue
		}
		if chosen, _ := scope.Chosen(); chosen != "script/one" {
			t.Errorf("the %s is answered by %q", who, chosen)
		}
	}
}
