package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/test/choirtest"
)

// TestAWaitingRunGivesItsPlaceBack shows, with one place for runs, that while a run waits for its
// user, because it asked something or is paused, others can go on and the computer counts as idle.
// The run goes on when it is answered.
func TestAWaitingRunGivesItsPlaceBack(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Runs = 1 }
	h.sleep()
	h.wake()
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 && prompted(req, "a question") {
			return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red"}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
	}
	waits := h.submit("a question")
	h.told(waits, "question.asked", nil)
	choirtest.Eventually(t, time.Minute, "the computer is idle", func() bool { return !h.d.Busy() })
	h.report(h.submit("other"))
	if len(h.events("run.reported")) != 1 {
		t.Fatal("the waiting run has ended")
	}
	q := h.events("question.asked")[0].(*contract.QuestionAsked).Question
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), waits, q.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	h.report(waits)

	paused := h.submit("a question")
	h.told(paused, "question.asked", nil)
	if _, err := h.d.Command(t.Context(), contract.Person("u"), paused, contract.CommandPause); err != nil {
		t.Fatal(err)
	}
	q = h.events("question.asked")[1].(*contract.QuestionAsked).Question
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), paused, q.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, time.Minute, "the paused run rests", func() bool { return !h.d.Busy() })
	h.report(h.submit("other"))
	if _, err := h.d.Command(t.Context(), contract.Person("u"), paused, contract.CommandResume); err != nil {
		t.Fatal(err)
	}
	h.report(paused)
	h.quiet()
	for _, run := range []string{waits, paused} {
		choirtest.Eventually(t, time.Minute, "the model forgets a run that ended", func() bool {
			_, ok := h.model.forgotten.Load(run)
			return ok
		})
	}
}

// quoted are lines that quote what was asked and reported in a computer's earlier runs.
var quoted = regexp.MustCompile(`(?m)^> (Asked|Reported): .*\n?`)

// prompted reports whether a Director's request is about a prompt, and does not only quote it of an earlier run.
func prompted(req contract.TurnRequest, text string) bool {
	for _, p := range req.Messages[0].Parts {
		if strings.Contains(quoted.ReplaceAllString(p.Text, ""), text) {
			return true
		}
	}
	return false
}

// metering meters more for each turn than the loops count, as the gateway may.
type metering struct {
	ports.Models
	h  *house
	mu sync.Mutex
	n  int
}

func (k *metering) Handler(s ports.ModelScope) http.Handler {
	next := k.Models.Handler(s)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		k.mu.Lock()
		k.n++
		n := k.n
		k.mu.Unlock()
		_, err := k.h.log.Append(req.Context(), contract.Draft{Actor: contract.System(), Type: "usage.metered", Run: s.Run, Task: s.Task,
			Data: contract.UsageMetered{Call: fmt.Sprint("call ", n), Role: string(s.Role), Provider: "script", Model: "one", Outcome: "ok",
				Usage: contract.Usage{TokensIn: 1000, TokensOut: 100, CostUSD: 0.5}}})
		if err != nil {
			k.h.t.Error(err)
		}
		next.ServeHTTP(w, req)
	})
}

// TestSpentIsWhatWasMetered shows that a report states what the gateway metered, including calls
// whose turns no loop counted, and that a task's result states its share.
func TestSpentIsWhatWasMetered(t *testing.T) {
	h := newHouse(t)
	k := &metering{Models: h.model, h: h}
	h.tune = func(o *dispatch.Options) { o.Models = k }
	h.sleep()
	h.wake()
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	rep := h.report(h.submit("go"))
	h.quiet()
	var all, task contract.Usage
	for _, e := range must(h.log.Read(t.Context(), 0, 500)) {
		if e.Type == "usage.metered" {
			u := must(h.log.Payload(t.Context(), e)).(*contract.UsageMetered).Usage
			all = all.Add(u)
			if e.Task != "" {
				task = task.Add(u)
			}
		}
	}
	if u := rep.Usage; all.CostUSD == 0 || u.TokensIn != all.TokensIn || u.TokensOut != all.TokensOut || u.CostUSD != all.CostUSD {
		t.Errorf("the report says %+v; metered was %+v", u, all)
	}
	if u := h.results()[0].Usage; u.TokensIn != task.TokensIn || u.CostUSD != task.CostUSD || u.ToolCalls != 1 {
		t.Errorf("the result says %+v; metered was %+v", u, task)
	}
}

// shuffled is a log in which appends of steering return in the opposite order to that in which they
// were stored.
type shuffled struct {
	ports.Log
	mu   sync.Mutex
	held []chan struct{}
	want int
}

func (l *shuffled) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	es, err := l.Log.Append(ctx, drafts...)
	if drafts[0].Type != "run.steered" {
		return es, err
	}
	l.mu.Lock()
	me := make(chan struct{})
	l.held = append(l.held, me)
	if len(l.held) == l.want { // all are stored, and the last one returns first
		close(me)
	}
	l.mu.Unlock()
	<-me
	l.mu.Lock()
	for i, ch := range l.held {
		if ch == me && i > 0 {
			defer close(l.held[i-1])
		}
	}
	l.mu.Unlock()
	return es, err
}

// TestStoriesGrowInTheLogsOrder shows that when a user says ten things at the same time, the
// Director is told of them in the log's order, whatever the order in which the appends return.
func TestStoriesGrowInTheLogsOrder(t *testing.T) {
	const n = 10
	h := newHouse(t)
	l := &shuffled{want: n}
	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.wake()
	reached, hold := make(chan struct{}), make(chan struct{})
	h.model.gate = func(role contract.ActorKind, n int) {
		if n == 0 {
			close(reached)
			<-hold
		}
	}
	heard := ""
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("p", "revise_plan", m{"objective": "o", "plan": []m{{"text": "one"}}}))
		}
		for _, msg := range req.Messages {
			for _, p := range msg.Parts {
				heard += p.Text
			}
		}
		return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
	}
	run := h.submit("go")
	<-reached
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, fmt.Sprintf("<said %d>", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(hold)
	h.report(run)
	at := -1
	for _, p := range h.events("run.steered") {
		text := p.(*contract.RunSteered).Text
		i := strings.Index(heard, text)
		if i <= at {
			t.Errorf("%s stands at %d, what was said before it at %d:\n%s", text, i, at, heard)
		}
		at = i
	}
}

// TestAQuestionsDeadlineHoldsOverARestart shows that a restart gives a question no new time: the default answers it when its
// recorded deadline has come. What choir was down for is added, as for an approval.
func TestAQuestionsDeadlineHoldsOverARestart(t *testing.T) {
	for name, down := range map[string]time.Duration{"restarted": 0, "down for an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.sleep()
			h.tune = func(o *dispatch.Options) { o.Now = h.logsClock }
			h.wake()
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red", "deadline_s": 600}))
				}
				return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
			}
			run := h.submit("go")
			q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
			// What is recorded later would be stamped with the time that passes below.
			h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
			passed := 599 * time.Second
			if down > 0 {
				passed = 300 * time.Second
			}
			h.ahead.Add(int64(passed))
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Go on."); err != nil {
				t.Fatal(err)
			}
			h.ahead.Add(int64(down))
			h.restart()
			if down > 0 {
				choirtest.Eventually(t, time.Minute, "it is asked again", func() bool { return h.d.Asking(run) == 1 })
				if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "blue"); err != nil {
					t.Fatal(err)
				}
			}
			if a := h.told(run, "question.answered", nil).(*contract.QuestionAnswered); a.Default != (down == 0) {
				t.Errorf("%+v", a)
			}
			h.report(run)
		})
	}
}

// TestAQuestionLosesNoTimeInWhichNobodyCouldAnswer shows that a question of ten minutes is open after several hours in which
// choir was down, each after a start that recorded something of its run, or in which the machine stood still while it waited.
func TestAQuestionLosesNoTimeInWhichNobodyCouldAnswer(t *testing.T) {
	for name, lose := range map[string]func(h *house){
		"down, over and over": func(h *house) { h.ahead.Add(int64(time.Hour)); h.restart() },
		"stood still, and restarted": func(h *house) {
			h.ahead.Add(int64(time.Hour))
			h.d.StoodStill(awake.Gap{For: time.Hour, Why: awake.Suspended})
			choirtest.Eventually(t, time.Minute, "that it stood still is recorded", func() bool { return len(h.events("run.stood")) > 0 })
			h.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.sleep()
			h.tune = func(o *dispatch.Options) { o.Now = h.logsClock }
			h.wake()
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red", "deadline_s": 600}))
				}
				return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
			}
			run := h.submit("go")
			q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
			waits := func() {
				choirtest.Eventually(t, time.Minute, "it waits", func() bool { return h.d.Asking(run) == 1 })
				if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Wait."); err != nil { // it is the first event of its process
					t.Fatal(err)
				}
			}
			for range 2 {
				waits()
				lose(h)
			}
			waits()
			if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "blue"); err != nil {
				t.Error(err)
			}
			if a := h.told(run, "question.answered", nil).(*contract.QuestionAnswered); a.Default {
				t.Errorf("nobody could answer in time, and the default did: %+v", a)
			}
			h.report(run)
		})
	}
}
