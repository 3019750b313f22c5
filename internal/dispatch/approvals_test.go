package dispatch_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

// approvalFixture is a fixture that records which hosts each task's box was approved for.
type approvalFixture struct {
	*house
	mu       sync.Mutex
	approved [][]string
}

// newGatehouse grants granted.example:443 and asks for everything else.
func newGatehouse(t *testing.T, patience time.Duration) *approvalFixture {
	g := &approvalFixture{house: newHouse(t)}
	g.tune = func(o *dispatch.Options) {
		o.Times.Approval = patience
		o.BeyondGrant = func(_ context.Context, spec contract.EgressSpec) ([]string, error) {
			return slices.DeleteFunc(slices.Clone(spec.Allow), func(s string) bool { return s == "granted.example:443" }), nil
		}
		o.Egress = func(s ports.EgressScope, _ contract.EgressSpec, _ func(string, bool)) (http.Handler, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.approved = append(g.approved, s.Approved)
			return http.NotFoundHandler(), nil
		}
	}
	g.sleep()
	g.wake()
	return g
}

func (g *approvalFixture) let() [][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.approved)
}

// wants is a task that names hosts.
func wants(goal string, hosts ...string) m {
	return m{"kind": "agent", "goal": goal, "tools": []string{"read"}, "verify": m{"profile": "none"},
		"egress": m{"profile": "custom", "allow": hosts, "reason": "to \u202eread\nthe docs"}}
}

func (g *approvalFixture) asked(run string) *contract.ApprovalRequested {
	g.t.Helper()
	return g.told(run, "approval.requested", nil).(*contract.ApprovalRequested)
}

func (g *approvalFixture) decide(k *contract.ApprovalRequested, a contract.ApprovalAnswer) error {
	_, _, err := g.d.Decide(g.t.Context(), contract.Person("u"), k.Approval, k.Digest, a)
	return err
}

// heard is what the Associate's model was told, in all.
func (g *approvalFixture) heard() string {
	g.model.mu.Lock()
	defer g.model.mu.Unlock()
	var b strings.Builder
	for _, r := range g.model.seen {
		for _, msg := range r.Messages {
			for _, p := range msg.Parts {
				b.WriteString(p.Text)
			}
		}
	}
	return b.String()
}

// underWay is a log that has approvals, and whoever follows it here learns of them
// only once somebody asks how far it goes.
type underWay struct {
	ports.Log
	asked atomic.Bool // there is an approval, or is about to be
	known chan struct{}
	once  sync.Once
}

func (l *underWay) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	for _, d := range drafts {
		if d.Type == "approval.requested" {
			l.asked.Store(true) // before others can see it
		}
	}
	return l.Log.Append(ctx, drafts...)
}

func (l *underWay) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		for e, err := range l.Log.Follow(ctx, after) {
			if err == nil && e.Type == "approval.requested" {
				select {
				case <-l.known:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (l *underWay) Last() uint64 {
	if l.asked.Load() {
		l.once.Do(func() { close(l.known) })
	}
	return l.Log.Last()
}

// A page shows an approval as soon as the log has it, which may be before the
// dispatcher has followed so far: the answer that comes at once is one all the same.
func TestAnApprovalIsAnsweredAsSoonAsItIsSeen(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	log := &underWay{known: make(chan struct{})}
	g.wrap = func(l ports.Log) ports.Log { log.Log = l; return log }
	g.sleep()
	g.wake()
	g.model.director, g.model.associate = plan(wants("look it up", "docs.example:8443")), steps()
	if err := g.decide(g.asked(g.submit("go")), contract.ApprovalOnce); err != nil {
		t.Error(err)
	}
}

func TestATaskWaitsForAPerson(t *testing.T) {
	for _, c := range []struct {
		answer contract.ApprovalAnswer
		let    bool
	}{{contract.ApprovalOnce, true}, {contract.ApprovalRun, true}, {contract.ApprovalDeny, false}} {
		t.Run(string(c.answer), func(t *testing.T) {
			g := newGatehouse(t, time.Hour)
			g.model.director, g.model.associate = plan(wants("look it up", "granted.example:443", "docs.example:8443")), steps()
			run := g.submit("go")
			k := g.asked(run)
			if k.Act != (contract.Act{Kind: contract.ApprovalEgress, Run: run, Host: "docs.example", Port: 8443}) || k.Claim != "to read the docs" || k.Attempt != 1 {
				t.Errorf("asked %+v", k)
			}
			g.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
			if len(g.let()) != 0 {
				t.Error("the task's box opened before it was answered")
			}
			// The approval does not allow another act.
			other := *k
			other.Digest = strings.Repeat("1", 64)
			if err := g.decide(&other, contract.ApprovalRun); !fault.Is(err, fault.Conflict) || len(g.events("approval.answered")) > 0 {
				t.Errorf("an answer for another act: %v", err)
			}
			if err := g.decide(k, c.answer); err != nil {
				t.Fatal(err)
			}
			if err := g.decide(k, contract.ApprovalRun); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
				t.Errorf("a second answer: %v", err)
			}
			if r := g.report(run); r.Status != contract.RunDone {
				t.Errorf("%+v", r)
			}
			if got := g.let(); len(got) != 1 || slices.Equal(got[0], []string{"docs.example:8443"}) != c.let {
				t.Errorf("the box was approved for %q", got)
			}
			if told := strings.Contains(g.heard(), "docs.example:8443 can't be reached: the user denied it"); told == c.let {
				t.Errorf("the model heard of a denial: %v", told)
			}
			if res := g.results(); len(res) != 1 || slices.Contains(res[0].Egress.Denied, "docs.example:8443") == c.let {
				t.Errorf("%+v", res)
			}
			if n := len(g.events("approval.answered")); n != 1 {
				t.Errorf("%d answers", n)
			}
			g.quiet()
		})
	}
}

// TestSilenceDenies: an unanswered approval is denied, and the task continues without it.
func TestSilenceDenies(t *testing.T) {
	g := newGatehouse(t, 50*time.Millisecond)
	g.model.director, g.model.associate = plan(wants("look it up", "docs.example:443")), steps()
	run := g.submit("go")
	if r := g.report(run); r.Status != contract.RunDone {
		t.Errorf("%+v", r)
	}
	a := g.events("approval.answered")
	if len(a) != 1 || a[0].(*contract.ApprovalAnswered).Answer != contract.ApprovalDeny || a[0].(*contract.ApprovalAnswered).Reason == "" {
		t.Fatalf("answers %+v", a)
	}
	if got := g.let(); len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("the box was approved for %q", got)
	}
	if !strings.Contains(g.heard(), "docs.example:443 can't be reached: nobody allowed it in time") {
		t.Errorf("the model heard %q", g.heard())
	}
	// A run that has reported is let go of a moment later; until then it has its answer.
	k := g.asked(run)
	g.waitFor(func() bool {
		err := g.decide(k, contract.ApprovalRun)
		if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
			t.Fatalf("an answer after the end: %v", err)
		}
		return fault.Is(err, fault.NotFound)
	})
}

// TestOneActIsOneQuestion: concurrent tasks share one question, and an approval for the
// run, like a denial, is not asked for again; an approval for one time is.
func TestOneActIsOneQuestion(t *testing.T) {
	for _, c := range []struct {
		answer contract.ApprovalAnswer
		asked  int
		let    []bool
	}{
		{contract.ApprovalRun, 1, []bool{true, true, true}},
		{contract.ApprovalDeny, 1, []bool{false, false, false}},
		{contract.ApprovalOnce, 2, []bool{true, true, false}},
	} {
		t.Run(string(c.answer), func(t *testing.T) {
			g := newGatehouse(t, time.Hour)
			g.model.associate = steps()
			g.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
				switch n {
				case 0:
					return parts(use("d0", "delegate", m{"tasks": []m{wants("one", "docs.example:443"), wants("two", "DOCS.example:443")}}))
				case 1:
					return parts(use("d1", "delegate", m{"tasks": []m{wants("three", "docs.example:443")}}))
				}
				return parts(use("d2", "report", m{"status": "done", "summary": "It is done."}))
			}
			run := g.submit("go")
			k := g.asked(run)
			g.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
			g.waitFor(func() bool { return g.d.Asking(run) == 2 })
			if err := g.decide(k, c.answer); err != nil {
				t.Fatal(err)
			}
			if c.asked == 2 {
				second := g.told(run, "approval.requested", func(p contract.Payload) bool { return p.(*contract.ApprovalRequested).Approval != k.Approval }).(*contract.ApprovalRequested)
				if err := g.decide(second, contract.ApprovalDeny); err != nil {
					t.Fatal(err)
				}
			}
			g.report(run)
			if n := len(g.events("approval.requested")); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
			got := g.let()
			for i, want := range c.let {
				if i >= len(got) || (len(got[i]) == 1) != want {
					t.Errorf("boxes were approved for %q", got)
					break
				}
			}
		})
	}
}

// TestWhoWaitsForAPersonHoldsNobodyUp: a task that waits keeps none of the places
// that tasks share.
func TestWhoWaitsForAPersonHoldsNobodyUp(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	tune := g.tune
	g.tune = func(o *dispatch.Options) {
		tune(o)
		o.Parallel = 1
	}
	g.sleep()
	g.wake()
	g.model.director, g.model.associate = plan(wants("look it up", "docs.example:443")), steps()
	first := g.submit("go")
	k := g.asked(first)
	g.waitFor(func() bool { return g.d.Asking(first) == 1 })
	g.model.mu.Lock()
	g.model.director = plan(wants("look here", "granted.example:443"))
	g.model.mu.Unlock()
	if r := g.report(g.submit("meanwhile")); r.Status != contract.RunDone {
		t.Errorf("%+v", r)
	}
	if err := g.decide(k, contract.ApprovalRun); err != nil {
		t.Fatal(err)
	}
	g.report(first)
	g.quiet()
}

// TestQuestionsAreCapped: requests beyond the limit are denied at once, and the task is
// told so.
func TestQuestionsAreCapped(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	var hosts []string
	for i := range 8 {
		hosts = append(hosts, fmt.Sprintf("h%d.example:443", i))
	}
	g.model.director, g.model.associate = plan(wants("look around", hosts...)), steps()
	run := g.submit("go")
	g.waitFor(func() bool { return g.d.Asking(run) > 0 })
	asked := g.events("approval.requested")
	if len(asked) != 5 {
		t.Errorf("%d questions are open", len(asked))
	}
	for _, k := range asked {
		if err := g.decide(k.(*contract.ApprovalRequested), contract.ApprovalRun); err != nil {
			t.Fatal(err)
		}
	}
	g.report(run)
	if got := g.let(); len(got) != 1 || len(got[0]) != 5 {
		t.Errorf("the box was approved for %q", got)
	}
	if !strings.Contains(g.heard(), "h7.example:443 can't be reached: 5 questions of this run wait for the user already") {
		t.Errorf("the model heard %q", g.heard())
	}
}

// TestModelsCantAskForRawTunnels: the Director gets an error, and no person is asked.
func TestModelsCantAskForRawTunnels(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	g.model.director, g.model.associate = plan(wants("send mail", "tcp://mail.example:25")), steps()
	run := g.submit("go")
	g.report(run)
	if n := len(g.events("task.requested")) + len(g.events("approval.requested")); n != 0 {
		t.Errorf("%d tasks and questions", n)
	}
	g.model.mu.Lock()
	defer g.model.mu.Unlock()
	last := g.model.seen[len(g.model.seen)-1].Messages
	if s := fmt.Sprint(last[len(last)-1].Parts[0].Return); !strings.Contains(s, "raw connection") {
		t.Errorf("the Director heard %s", s)
	}
}

// TestApprovalsSurviveARestart: what waited still waits, under the same id, and
// what a run that ends left open is denied.
func TestApprovalsSurviveARestart(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	g.model.director, g.model.associate = plan(wants("look it up", "docs.example:443")), steps()
	run := g.submit("go")
	k := g.asked(run)
	g.sleep()
	g.wake()
	if n := len(g.events("approval.answered")); n != 0 {
		t.Errorf("%d answers after the restart", n)
	}
	if err := g.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.waitFor(func() bool { return g.d.Asking(run) == 1 })
	if err := g.decide(k, contract.ApprovalOnce); err != nil {
		t.Fatal(err)
	}
	g.report(run)
	if n := len(g.events("approval.requested")); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if got := g.let(); len(got) != 1 || len(got[0]) != 1 {
		t.Errorf("the box was approved for %q", got)
	}

	run = g.submit("again")
	g.told(run, "approval.requested", nil)
	if _, err := g.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
		t.Fatal(err)
	}
	g.report(run)
	a := g.told(run, "approval.answered", nil).(*contract.ApprovalAnswered)
	if a.Answer != contract.ApprovalDeny || a.Reason == "" {
		t.Errorf("after the end: %+v", a)
	}
	g.quiet()
}

func (g *approvalFixture) waitFor(cond func() bool) {
	g.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			g.t.Fatalf("waited too long\n%s", g.story())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestRunsThatWaitForApprovalGiveTheirPlacesBack: with four runs that wait for a
// person's word, a fifth goes on, the computer counts as idle, and with fewer
// places than runs that were answered all of them end.
func TestRunsThatWaitForApprovalGiveTheirPlacesBack(t *testing.T) {
	for _, places := range []int{4, 1} {
		t.Run(fmt.Sprint(places, " places"), func(t *testing.T) {
			g := newGatehouse(t, time.Hour)
			tune := g.tune
			g.tune = func(o *dispatch.Options) {
				tune(o)
				o.Runs = places
			}
			g.sleep()
			g.wake()
			g.model.associate = steps()
			g.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				host := "docs.example:443"
				if prompted(req, "meanwhile") {
					host = "granted.example:443"
				}
				return plan(wants("one", host), wants("two", host))(n, req)
			}
			var waits []string
			var asked []*contract.ApprovalRequested
			for range 4 {
				run := g.submit("go")
				waits, asked = append(waits, run), append(asked, g.asked(run))
				g.waitFor(func() bool { return g.d.Asking(run) == 2 })
			}
			g.waitFor(func() bool { return !g.d.Busy() })
			if r := g.report(g.submit("meanwhile")); r.Status != contract.RunDone {
				t.Errorf("%+v", r)
			}
			g.waitFor(func() bool { return !g.d.Busy() })
			var all sync.WaitGroup
			for _, k := range asked {
				all.Go(func() {
					if err := g.decide(k, contract.ApprovalRun); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, run := range waits {
				if r := g.report(run); r.Status != contract.RunDone {
					t.Errorf("%+v", r)
				}
			}
			g.quiet()
		})
	}
}

// TestARunWorksWhileOneOfItsTasksWaits: a run keeps its slot as long as another of its
// tasks goes on.
func TestARunWorksWhileOneOfItsTasksWaits(t *testing.T) {
	g := newGatehouse(t, time.Hour)
	reached, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g.model.director = plan(wants("one", "docs.example:443"), wants("two", "granted.example:443"))
	g.model.gate = func(role contract.ActorKind, n int) {
		if role == contract.KindAssociate {
			once.Do(func() {
				close(reached)
				<-hold
			})
		}
	}
	g.model.associate = steps()
	run := g.submit("go")
	k := g.asked(run)
	<-reached
	g.waitFor(func() bool { return g.d.Asking(run) == 1 })
	if !g.d.Busy() {
		t.Error("the computer counts as idle while a task works")
	}
	close(hold)
	g.waitFor(func() bool { return !g.d.Busy() })
	if err := g.decide(k, contract.ApprovalRun); err != nil {
		t.Fatal(err)
	}
	if r := g.report(run); r.Status != contract.RunDone {
		t.Errorf("%+v", r)
	}
	g.quiet()
}
