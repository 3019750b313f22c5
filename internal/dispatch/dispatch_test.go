package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

var agentTask = m{"kind": "agent", "goal": "Make a.sh say two", "tools": []string{"read", "edit", "write", "bash"}}

func edit(id string) contract.Part {
	return use(id, "edit", m{"path": "workspace/a.sh", "old": "one", "new": "two"})
}

func TestAPromptEndToEnd(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "read", m{"path": "workspace/a.sh"}), edit("c1"), use("c2", "bash", m{"command": "bash workspace/a.sh"}))
	run := h.submit("make it say two")
	rep := h.report(run)
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass || rep.Checkpoint == "" {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo two\n" {
		t.Fatalf("live %q", got)
	}
	res := h.results()
	if len(res) != 1 || res[0].Status != contract.ResultOK || len(res[0].Changes) != 1 || len(res[0].Commands) != 1 || res[0].Commands[0].Stdout != "two\n" ||
		len(res[0].Verification.Checks) != 1 || res[0].Usage.ToolCalls != 3 || res[0].Head == "" {
		t.Fatalf("%+v", res)
	}
	if n := len(h.events("tool.called")); n != 3 || len(h.events("tool.returned")) != 3 {
		t.Errorf("%d calls", n)
	}
	if s := <-h.sent; s != contract.SubjectWords(h.cid, run)+` {"text":"word by word"}` {
		t.Errorf("sent %s", s)
	}
	<-h.sent
	if s := <-h.sent; !strings.HasPrefix(s, contract.SubjectResult(h.cid, run)+` {"status":"done"`) {
		t.Errorf("sent %s", s)
	}
	doc := must(h.docs.Get(t.Context(), contract.DeriveID(run, "document")))
	for _, want := range []string{"## Objective", "## Evidence", "`workspace/a.sh` (modified, ", "bash workspace/a.sh`: exit 0 in ", "**pass**", "## Result", "**done**", "It is done.", "5 tool calls"} {
		if !strings.Contains(doc.Body, want) {
			t.Errorf("the document lacks %q:\n%s", want, doc.Body)
		}
	}
}

func TestTheSamePromptTwiceIsOneRun(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "git", "goal": "note it", "steps": []m{{"git": m{"op": "checkpoint"}}}})
	p := dispatch.Prompt{ID: contract.NewID(), By: contract.Person("u"), Text: "go"}
	run, seq, err := h.d.Submit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	h.report(run)
	h.quiet()
	again, same, err := h.d.Submit(t.Context(), p)
	if err != nil || again != run || same != seq || h.d.Busy() {
		t.Fatalf("%s %d %v", again, same, err)
	}
	p.Text = "something else"
	if _, _, err := h.d.Submit(t.Context(), p); !fault.Is(err, fault.Conflict) {
		t.Fatalf("another prompt under the same id: %v", err)
	}
	if n := len(h.events("run.reported")); n != 1 {
		t.Fatalf("%d reports", n)
	}
}

func TestAFailedVerificationPublishesNothing(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "if then"}), use("c1", "write", m{"overwrite": true, "path": "choiros/x.css", "content": "blue"}))
	rep := h.report(h.submit("break it"))
	// The Director says that the run is done, and the host knows that it is not.
	if rep.Status != contract.RunFailed || rep.Verified == contract.VerificationPass || !strings.Contains(rep.Summary, "it is not") {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if got := string(readFile(h.ws.live(), "workspace/a.sh")) + string(readFile(h.ws.live(), "choiros/x.css")); got != "echo one\nred\n" {
		t.Fatalf("live %q", got)
	}
	if h.ws.shown == 0 || h.ws.inverted != 1 {
		t.Errorf("shown %d, inverted %d", h.ws.shown, h.ws.inverted)
	}
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultFailed || res[0].Verification.Status != contract.VerificationFail || len(res[0].Changes) != 2 {
		t.Fatalf("%+v", res)
	}
}

func TestNoCheckIsUnknownNeverAPass(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "write", m{"overwrite": true, "path": "notes/notes.md", "content": "hi"}))
	rep := h.report(h.submit("take a note"))
	if rep.Status != contract.RunDone || rep.Verified != contract.VerificationUnknown || !strings.Contains(rep.Summary, "not verified") {
		t.Fatalf("%+v", rep)
	}
}

func TestExecAndGitRunOnlyTheirSteps(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(
		m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "workspace/b.sh", "content": "echo b\n"}}, {"run": m{"argv": []string{"bash", "workspace/b.sh"}}},
			{"patch": m{"diff": "--- a/workspace/a.sh\n+++ b/workspace/a.sh\n@@ -1 +1 @@\n-echo one\n+echo three\n"}}}},
		m{"kind": "git", "goal": "note it", "steps": []m{{"git": m{"op": "checkpoint", "message": "x"}}}})
	rep := h.report(h.submit("go"))
	if rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if got := string(readFile(h.ws.live(), "workspace/a.sh")); got != "echo three\n" {
		t.Fatalf("live %q", got)
	}
	for _, r := range h.results() {
		if r.Status != contract.ResultOK {
			t.Errorf("%+v", r)
		}
	}
}

func TestAFailingStepFailsTheTask(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "workspace/b.sh", "content": "echo b\n"}}, {"run": m{"argv": []string{"false"}}}}})
	if rep := h.report(h.submit("go")); rep.Status != contract.RunFailed {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if readFile(h.ws.live(), "workspace/b.sh") != nil {
		t.Fatal("published")
	}
}

func TestInvalidTasksAreRefusedWithFieldAndReason(t *testing.T) {
	h := newHouse(t)
	var refusals []string
	bad := []m{
		{"kind": "agent", "goal": "g", "tools": []string{"rm"}},
		{"kind": "inspect", "goal": "g", "tools": []string{"bash"}},
		{"kind": "agent", "goal": "g"},
		{"kind": "exec", "goal": "g"},
		{"kind": "exec", "goal": "g", "steps": []m{{"write": m{"path": "../x", "content": ""}}}},
		{"kind": "agent", "goal": "g", "tools": []string{"read"}, "egress": m{"profile": "none", "allow": []string{"a:1"}}},
	}
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n > 0 {
			last := req.Messages[len(req.Messages)-1]
			refusals = append(refusals, last.Parts[0].Return.Content)
		}
		if n < len(bad) {
			// A good task that is delegated beside a refused one is refused with it, so that
			// nothing is half-done.
			return parts(use("d", "delegate", m{"tasks": []m{agentTask, bad[n]}}))
		}
		return parts(use("r", "report", m{"status": "failed", "summary": "no"}))
	}
	h.report(h.submit("go"))
	want := []string{"tasks[1].tools[0]", "tasks[1].tools[0]", "tasks[1].tools", "tasks[1].steps", "tasks[1].steps[0].write.path", "tasks[1].egress"}
	if len(refusals) != len(want) {
		t.Fatalf("%q", refusals)
	}
	for i, r := range refusals {
		if !strings.Contains(r, want[i]) {
			t.Errorf("refusal %d is %q, want %q in it", i, r, want[i])
		}
	}
	if n := len(h.events("task.requested")); n != 0 {
		t.Errorf("%d tasks were requested", n)
	}
}

// TestNobodyWaitsForWhatATaskLeft delays the removal of a task's overlay until the user has the
// report, and shows that neither the Director nor the user waits for it, while whoever puts the
// computer to sleep does.
func TestNobodyWaitsForWhatATaskLeft(t *testing.T) {
	h := newHouse(t)
	reported := make(chan struct{})
	release := sync.OnceFunc(func() { close(reported) })
	defer release()
	h.ws.drop = func() { <-reported }
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	rep := h.report(h.submit("make it say two"))
	if rep.Status != contract.RunDone || !h.d.Busy() {
		t.Errorf("%+v; busy %v while an overlay is being removed", rep, h.d.Busy())
	}
	release()
	h.sleep()
	left, err := os.ReadDir(filepath.Join(h.ws.dir, "boxes"))
	if h.ws.dropped != 1 || err == nil && len(left) > 0 {
		t.Errorf("%d overlays were removed when the computer slept; %v are left", h.ws.dropped, left)
	}
}

func TestInspectMayOnlyRead(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "inspect", "goal": "look", "tools": []string{"read"}})
	var answer string
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("c0", "write", m{"overwrite": true, "path": "workspace/a.sh", "content": "x"}), use("c1", "read", m{"path": "workspace/a.sh"}))
		default:
			answer = req.Messages[2].Parts[0].Return.Content
			return parts(use("f", "finish", m{"status": "ok", "summary": "seen"}))
		}
	}
	if rep := h.report(h.submit("look")); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if !strings.Contains(answer, "no tool") || h.ws.dropped != 1 {
		t.Errorf("%q, dropped %d", answer, h.ws.dropped)
	}
}

func TestUserEditsDuringVerification(t *testing.T) {
	for _, c := range []struct {
		name  string
		races int
		want  contract.VerificationStatus
	}{{"once: verified again", 1, contract.VerificationPass}, {"always: unknown", 99, contract.VerificationUnknown}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.model.director = plan(agentTask)
			h.model.associate = steps(edit("c1"))
			n := 0
			h.ws.race = func() {
				if n++; n <= c.races {
					put(h.ws.live(), "workspace/user.txt", []byte{byte(n)})
				}
			}
			rep := h.report(h.submit("go"))
			if rep.Status != contract.RunDone || rep.Verified != c.want {
				t.Fatalf("%+v", rep)
			}
			h.quiet()
			if readFile(h.ws.live(), "workspace/user.txt") == nil || string(readFile(h.ws.live(), "workspace/a.sh")) != "echo two\n" {
				t.Fatal("something was lost")
			}
			if last := h.ws.verified[len(h.ws.verified)-1]; last != c.want {
				t.Errorf("checkpoint is %s", last)
			}
		})
	}
}

func TestCancelReachesTheLastChild(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "write", m{"overwrite": true, "path": "choiros/x.css", "content": "blue"}), use("c1", "bash", m{"command": "touch " + h.dir + "/began; sleep 1000"}))
	run := h.submit("go")
	h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Name == "bash" })
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunCancelled {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if got := string(readFile(h.ws.live(), "choiros/x.css")); got != "red\n" {
		t.Fatalf("live %q", got)
	}
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultCancelled {
		t.Fatalf("%+v", res)
	}
}

func TestPauseSteerAskAnswer(t *testing.T) {
	h := newHouse(t)
	var heard string
	asked := make(chan struct{})
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("p", "revise_plan", m{"objective": "Know the colour", "plan": []m{{"text": "ask"}}}), use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red"}))
		default:
			for _, msg := range req.Messages {
				for _, p := range msg.Parts {
					heard += p.Text + "\n"
					if p.Return != nil {
						heard += p.Return.Content + "\n"
					}
					if p.Call != nil {
						heard += string(p.Call.Args) + "\n"
					}
				}
			}
			close(asked)
			return parts(use("r", "report", m{"status": "done", "summary": "ok"}))
		}
	}
	run := h.submit("colour")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked)
	h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandPause); err != nil {
		t.Fatal(err)
	}
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "and make it dark"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.Question.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.Question.ID, "red"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second answer: %v", err)
	}
	select {
	case <-asked:
		t.Fatal("a paused run went on")
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandResume); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunDone || rep.Verified != contract.VerificationUnknown {
		t.Fatalf("%+v", rep)
	}
	for _, want := range []string{"The user answers: blue", "The user says (1): and make it dark", "Know the colour"} {
		if !strings.Contains(heard, want) {
			t.Errorf("the Director did not hear %q:\n%s", want, heard)
		}
	}
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "late"); !fault.Is(err, fault.NotFound) {
		h.quiet()
		if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "late"); !fault.Is(err, fault.NotFound) {
			t.Errorf("steering an ended run: %v", err)
		}
	}
}

func TestUserEditsOfTheDocumentStay(t *testing.T) {
	h := newHouse(t)
	hold := make(chan struct{})
	var saw string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("p", "revise_plan", m{"objective": "Old objective", "plan": []m{{"text": "one"}}}))
		case 1:
			<-hold
			return parts(use("p2", "revise_plan", m{"objective": "Newer objective", "plan": []m{{"text": "one", "status": "done"}}}))
		default:
			saw = textOf(req)
			return parts(use("r", "report", m{"status": "done", "summary": "ok"}))
		}
	}
	run := h.submit("plan")
	id := contract.DeriveID(run, "document")
	var doc state.Revision
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(doc.Body, "Old objective"); {
		doc, _ = h.docs.Get(t.Context(), id)
		if time.Now().After(deadline) {
			t.Fatalf("no objective in %q", doc.Body)
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.docs.edit(id, func(body string) string { return strings.Replace(body, "Old objective", "What I really want", 1) })
	close(hold)
	h.report(run)
	h.quiet()
	doc, _ = h.docs.Get(t.Context(), id)
	if !strings.Contains(doc.Body, "What I really want") || strings.Contains(doc.Body, "Newer objective") || !strings.Contains(doc.Body, "- [x] one") {
		t.Errorf("document:\n%s", doc.Body)
	}
	if !strings.Contains(saw, "What I really want") {
		t.Errorf("the Director did not see the edit:\n%s", saw)
	}
}

func TestABoxThatCantBeOpenedFailsTheRunWithTheReason(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c"))
	h.boxes.break_ = func(r ports.BoxRequest) error {
		if r.Kind == contract.BoxTask {
			return fault.New("box", fault.Missing, "Install bubblewrap.", errors.New("bwrap is not there"))
		}
		return nil
	}
	rep := h.report(h.submit("go"))
	if rep.Status != contract.RunFailed {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	h.boxes.break_ = func(ports.BoxRequest) error {
		return fault.New("box", fault.Missing, "Install bubblewrap.", errors.New("bwrap is not there"))
	}
	rep = h.report(h.submit("go again"))
	if rep.Status != contract.RunFailed || !strings.Contains(rep.Summary, "Install bubblewrap") {
		t.Fatalf("%+v", rep)
	}
}

func TestASecondModelAnswerUnderAnEndedFenceIsGone(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	var hosts []http.Handler
	var mu sync.Mutex
	h.boxes.break_ = func(r ports.BoxRequest) error {
		mu.Lock()
		defer mu.Unlock()
		if r.Kind == contract.BoxAssociate {
			hosts = append(hosts, r.Handler)
		}
		return nil
	}
	h.report(h.submit("go"))
	h.quiet()
	for _, path := range []string{"/tools/write", "/turns", "/wake", "/model/turns"} {
		req, err := http.NewRequest(http.MethodPost, path, strings.NewReader(`{"path":"x","content":"y"}`))
		if err != nil {
			t.Fatal(err)
		}
		rec := &recorder{header: http.Header{}}
		hosts[0].ServeHTTP(rec, req)
		if rec.status != http.StatusGone {
			t.Errorf("%s under an ended token: %d", path, rec.status)
		}
	}
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(s int)           { r.status = s }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// TestAHostileAssociateGetsOnlyItsTask runs an Associate's box that is not ours: whatever it asks,
// it gets what its task was granted, and gets it once, and its result is not believed.
func TestAHostileAssociateGetsOnlyItsTask(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "budget": m{"tool_calls": 2}, "steps": []m{{"write": m{"path": "notes/b.txt", "content": "b"}}}})
	got := map[string]int{}
	h.boxes.evil = func(host *http.Client) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var msg associate.Message
			if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
				t.Error(err)
			}
			ask := func(name, path, fence, call, body string) {
				req, err := http.NewRequest(http.MethodPost, "http://host"+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Choir-Fence", fence)
				req.Header.Set("Choir-Call", call)
				resp, err := host.Do(req)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				resp.Body.Close()
				got[name] = resp.StatusCode
			}
			step := `{"overwrite":true,"path":"notes/b.txt","content":"b"}`
			ask("a forged token", "/tools/write", strings.Repeat("0", 48), "c", step)
			ask("no token", "/tools/write", "", "c", step)
			ask("another write", "/tools/write", msg.Fence, "c1", `{"path":"workspace/a.sh","content":"owned"}`)
			ask("a tool it has not", "/tools/bash", msg.Fence, "c2", `{"command":"true"}`)
			ask("an internal tool", "/tools/facts", msg.Fence, "c3", `{"paths":[]}`)
			ask("the history", "/tools/git", msg.Fence, "c4", `{"op":"restore","ref":"`+strings.Repeat("0", 40)+`"}`)
			ask("no call id", "/tools/write", msg.Fence, "", step)
			ask("a Director's door", "/tasks", msg.Fence, "c5", `{}`)
			ask("an event", "/events", msg.Fence, "c6", `{"type":"task.finished","data":{}}`)
			ask("its step", "/tools/write", msg.Fence, "c7", step)
			ask("its step replayed", "/tools/write", msg.Fence, "c7", step)
			ask("its step again", "/tools/write", msg.Fence, "c8", step)
			ask("beyond its budget", "/tools/write", msg.Fence, "c9", step)
			fmt.Fprintln(w, `{"end":{"status":"ok","summary":"all good","usage":{"tool_calls":-7,"tokens_in":-1,"wall_ms":0,"tokens_out":0,"cost_usd":-5}}}`)
		})
	}
	rep := h.report(h.submit("go"))
	h.quiet()
	want := map[string]int{"a forged token": 410, "no token": 410, "another write": 403, "a tool it has not": 403, "an internal tool": 403, "the history": 403,
		"no call id": 400, "a Director's door": 404, "an event": 404, "its step": 200, "its step replayed": 409, "its step again": 200, "beyond its budget": 409}
	for name, code := range want {
		if got[name] != code {
			t.Errorf("%s: %d, want %d", name, got[name], code)
		}
	}
	if s := string(readFile(h.ws.live(), "workspace/a.sh")); s != "echo one\n" {
		t.Errorf("live %q", s)
	}
	res := h.results()
	if len(res) != 1 || res[0].Usage.ToolCalls != 2 || res[0].Usage.CostUSD != 0 || rep.Verified != contract.VerificationUnknown {
		t.Errorf("%+v %+v", res, rep)
	}
}

// TestALoopThatMisbehavesEndsItsTask shows that a loop that says nothing, or nonsense, does not
// keep its run from ending.
func TestALoopThatMisbehavesEndsItsTask(t *testing.T) {
	for name, line := range map[string]string{"garbage": "hello", "an unknown field": `{"end":{"status":"ok","summary":"x","head":"1"}}`,
		"a huge line": strings.Repeat("x", 2<<20), "an early end": "", "an unknown status": `{"end":{"status":"splendid","summary":"x","usage":{"wall_ms":0,"tool_calls":0,"tokens_in":0,"tokens_out":0,"cost_usd":0}}}`} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "notes/b.txt", "content": "b"}}}})
			h.boxes.evil = func(*http.Client) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, line) })
			}
			if rep := h.report(h.submit("go")); rep.Status != contract.RunFailed {
				t.Fatalf("%+v", rep)
			}
			h.quiet()
			if readFile(h.ws.live(), "notes/b.txt") != nil {
				t.Error("something was published")
			}
		})
	}
}

func TestALoopThatNeverEndsUsesUpItsTurns(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		return parts(use(fmt.Sprint("c", n), "bash", m{"command": fmt.Sprintf("echo %d", n)}))
	}
	if rep := h.report(h.submit("go")); rep.Status != contract.RunFailed {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if res := h.results(); len(res) != 1 || !strings.Contains(res[0].Summary, "12 model turns") || res[0].Usage.ToolCalls != 12 {
		t.Fatalf("%+v", res)
	}
}

// delegations makes a Director that delegates one task after the other and then reports done.
func delegations(tasks ...m) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, _ contract.TurnRequest) []contract.Part {
		if n < len(tasks) {
			return parts(use(fmt.Sprintf("d%d", n), "delegate", m{"tasks": []m{tasks[n]}}))
		}
		return parts(use("end", "report", m{"status": "done", "summary": "It is done."}))
	}
}

func TestARunIsAllOfItsTasks(t *testing.T) {
	step := func(goal, path, content string) m {
		return m{"kind": "exec", "goal": goal, "steps": []m{{"write": m{"path": path, "content": content}}}}
	}
	broken, whole := "if then", "echo two\n"
	for name, c := range map[string]struct {
		tasks    []m
		status   contract.RunStatus
		verified contract.VerificationStatus
		says     string
	}{
		"a failed task and a harmless one":   {[]m{step("the hard part", "workspace/a.sh", broken), step("the easy part", "workspace/b.sh", whole)}, "failed", "unknown", "“the hard part” ended as failed"},
		"the same goal again":                {[]m{step("the hard part", "workspace/a.sh", broken), step("the hard part", "workspace/a.sh", whole)}, "done", "pass", "An earlier attempt at “the hard part” ended as failed"},
		"the same goal in another project":   {[]m{step("the hard part", "workspace/a.sh", broken), step("the hard part", "other/b.sh", whole)}, "failed", "unknown", "“the hard part” ended as failed"},
		"one that goes back":                 {[]m{step("a", "workspace/a.sh", whole), {"kind": "git", "goal": "back", "steps": []m{{"git": m{"op": "restore", "ref": strings.Repeat("0", 39) + "1"}}}}}, "done", "unknown", "“back” is not verified"},
		"one that looks back":                {[]m{step("a", "workspace/a.sh", whole), {"kind": "git", "goal": "back", "steps": []m{{"git": m{"op": "log"}}}}}, "done", "pass", ""},
		"the same goal, and nothing done":    {[]m{step("the hard part", "workspace/a.sh", broken), step("the hard part", "workspace/a.sh", "echo one\n")}, "failed", "unknown", "“the hard part” ended as failed"},
		"one that is not verified":           {[]m{step("a", "workspace/a.sh", whole), step("b", "notes/b.txt", "hi")}, "done", "unknown", "“b” is not verified"},
		"nobody was asked":                   {nil, "done", "unknown", "these are only words"},
		"another goal for the failed one":    {[]m{step("make it work", "workspace/a.sh", broken), step("make it work, really", "workspace/a.sh", whole)}, "failed", "unknown", "“make it work” ended as failed"},
		"a task that weakens what judges it": {[]m{step("tests", "workspace/test_a.py", "import unittest\n")}, "done", "unknown", "the task changed the test workspace/test_a.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			put(h.ws.live(), "other/requirements.txt", nil)
			put(h.ws.live(), "other/test_b.py", []byte("import unittest\nclass B(unittest.TestCase):\n    def test_b(self): pass\n"))
			h.model.director = delegations(c.tasks...)
			rep := h.report(h.submit("go"))
			if rep.Status != c.status || rep.Verified != c.verified || !strings.Contains(rep.Summary, c.says) {
				t.Errorf("%s, %s: %s", rep.Status, rep.Verified, rep.Summary)
			}
		})
	}
}
