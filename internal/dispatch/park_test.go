package dispatch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// parking wakes the house with a dispatcher that parks what has rested for a moment.
func (h *house) parking() {
	h.sleep()
	h.tune = func(o *dispatch.Options) { o.Now, o.Times.Park = h.logsClock, 20*time.Millisecond }
	h.wake()
}

// gone waits until a run is parked, and no box is left of it.
func (h *house) gone(run string) {
	h.t.Helper()
	choirtest.Eventually(h.t, time.Minute, "the run is parked", func() bool { return h.d.Parked(run) })
}

// asker asks its user one thing, and reports what it was answered.
func (h *house) asker() {
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red", "deadline_s": 600}))
		}
		said := "nothing"
		for _, p := range req.Messages[len(req.Messages)-1].Parts {
			if p.Return != nil && p.Return.ID == "q" {
				said = p.Return.Content
			}
		}
		return parts(use("r", "report", m{"status": "done", "summary": said}))
	}
}

// TestARunThatWaitsForItsPersonIsParked: nothing of it is left but what lists it, and it goes on where it was: by an answer,
// by an answer after a restart, and by its default.
func TestARunThatWaitsForItsPersonIsParked(t *testing.T) {
	for name, act := range map[string]struct {
		do   func(h *house, run, question string)
		want string
	}{
		"answered": {func(h *house, run, q string) { h.answer(run, q) }, "blue"},
		"answered after a restart": {func(h *house, run, q string) {
			h.restart()
			h.gone(run)
			h.answer(run, q)
		}, "blue"},
		"told something, and answered": {func(h *house, run, q string) {
			if _, err := h.d.Steer(h.t.Context(), contract.Person("u"), run, "Be quick."); err != nil {
				h.t.Fatal(err)
			}
			h.gone(run)
			h.answer(run, q)
		}, "blue"},
		"the time is up": {func(h *house, run, q string) {
			h.ahead.Add(int64(time.Hour))
			if _, err := h.d.Steer(h.t.Context(), contract.Person("u"), run, "Be quick."); err != nil { // its timer is the process's
				h.t.Fatal(err)
			}
		}, "red"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parking()
			h.asker()
			run := h.submit("ask me")
			q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
			h.gone(run)
			if list := h.d.Health(10); len(list) != 1 || list[0].ID != run || list[0].For != "person" || list[0].Reason != "Which colour?" || !h.d.Open() || h.d.Busy() {
				t.Fatalf("%+v, open: %v, busy: %v", list, h.d.Open(), h.d.Busy())
			}
			act.do(h, run, q.ID)
			if a := h.told(run, "question.answered", nil).(*contract.QuestionAnswered); a.Answer != act.want {
				t.Errorf("%+v", a)
			}
			h.report(run)
			h.quiet()
			if n := len(h.events("question.asked")); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if h.d.Open() || h.d.Parked(run) {
				t.Error("it is open")
			}
		})
	}
}

func (h *house) answer(run, question string) {
	h.t.Helper()
	if _, err := h.d.Answer(h.t.Context(), contract.Person("u"), run, question, "blue"); err != nil {
		h.t.Fatal(err)
	}
}

// TestAParkedQuestionIsAnsweredByItsDefault shows that nobody has to say anything for a parked run to go on in time.
func TestAParkedQuestionIsAnsweredByItsDefault(t *testing.T) {
	h := newHouse(t)
	h.parking()
	patience := 5 // seconds, which a busy machine may need to park it
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("q", "ask_user", m{"text": "Which?", "choices": []string{"a", "b"}, "default": "a", "deadline_s": patience}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
	}
	for seen := false; !seen; patience *= 2 {
		run := h.submit("ask me")
		choirtest.Eventually(t, time.Minute, "the run is parked, or its time is up", func() bool {
			seen = seen || h.d.Parked(run)
			return seen || len(h.events("question.answered")) == len(h.events("prompt.submitted"))
		})
		if a := h.told(run, "question.answered", nil).(*contract.QuestionAnswered); !a.Default {
			t.Errorf("%+v", a)
		}
		h.report(run)
	}
}

// TestAParkedQuestionLosesNoTimeInWhichChoirStoodStill is TestAQuestionLosesNoTimeInWhichNobodyCouldAnswer of a parked run,
// and the time in which it is parked is not added.
func TestAParkedQuestionLosesNoTimeInWhichChoirStoodStill(t *testing.T) {
	for name, stood := range map[string]bool{"stood still": true, "awake": false} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.parking()
			h.asker()
			run := h.submit("ask me")
			q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
			h.gone(run)
			h.ahead.Add(int64(time.Hour))
			if stood {
				h.d.StoodStill(awake.Gap{For: time.Hour, Why: awake.Suspended})
				h.told(run, "run.stood", nil)
			}
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "I am back."); err != nil {
				t.Fatal(err)
			}
			if stood {
				h.gone(run) // it still waits
				h.answer(run, q.ID)
			}
			if a := h.told(run, "question.answered", nil).(*contract.QuestionAnswered); a.Default == stood {
				t.Errorf("%+v", a)
			}
			h.report(run)
		})
	}
}

// TestAPausedRunIsParked: between two of its tasks, and it goes on when it is resumed, or ends when it is cancelled.
func TestAPausedRunIsParked(t *testing.T) {
	for name, c := range map[string]contract.RunCommand{"resumed": contract.CommandResume, "cancelled": contract.CommandCancel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parking()
			h.asker()
			run := h.submit("ask me")
			q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandPause); err != nil {
				t.Fatal(err)
			}
			h.answer(run, q.ID)
			h.gone(run)
			if list := h.d.Health(10); len(list) != 1 || list[0].Reason != "it is paused" {
				t.Errorf("%+v", list)
			}
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, c); err != nil {
				t.Fatal(err)
			}
			h.report(run)
			h.quiet()
			want := contract.RunDone
			if c == contract.CommandCancel {
				want = contract.RunCancelled
			}
			if r := h.events("run.reported")[0].(*contract.RunReported); r.Status != want {
				t.Errorf("%s: %s", r.Status, r.Summary)
			}
		})
	}
}

// TestAReviewIsParked: what waits to be looked at is shown and decided about as if its run were in memory.
func TestAReviewIsParked(t *testing.T) {
	for name, how := range map[string]contract.ReviewAnswered{"taken": take, "sent back": revise, "discarded": discard} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.sleep()
			h.tune = func(o *dispatch.Options) { o.Review, o.Times.Park = true, 20*time.Millisecond }
			h.wake()
			h.model.director, h.model.associate = plan(agentTask), steps(blue, edit("c1"))
			run := h.submit("go")
			r := h.review(run, 1)
			h.gone(run)
			if h.d.Open() || h.d.Busy() {
				t.Error("what only waits to be looked at keeps the computer awake")
			}
			if v, err := h.d.Review(t.Context(), run, h.task()); err != nil || len(v.Files) != 2 {
				t.Fatalf("%+v, %v", v, err)
			}
			h.gone(run)
			if err := h.look(run, r, how); err != nil {
				t.Fatal(err)
			}
			if how.Decision == contract.ReviewRevise {
				r = h.review(run, 2)
				h.gone(run)
				if err := h.look(run, r, take); err != nil {
					t.Fatal(err)
				}
			}
			h.report(run)
			h.quiet()
			want := "echo two\nblue\n"
			if how.Decision == contract.ReviewDiscard {
				want = "echo one\nred\n"
			}
			if h.liveNow() != want {
				t.Errorf("live: %q", h.liveNow())
			}
		})
	}
}

// TestALoopThatIsPausedIsNotParked: its box has its shell, and what that started. Another run, which rests later, is.
func TestALoopThatIsPausedIsNotParked(t *testing.T) {
	h := newHouse(t)
	h.parking()
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch {
		case n > 0:
			return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
		case prompted(req, "ask me"):
			return parts(use("q", "ask_user", m{"text": "Which?", "choices": []string{"a", "b"}, "default": "a", "deadline_s": 600}))
		}
		return plan(agentTask)(n, req)
	}
	held, works := make(chan struct{}), steps(blue, edit("c1"))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			<-held
		}
		return works(n, req)
	}
	run := h.submit("work")
	h.told(run, "task.started", nil)
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandPause); err != nil {
		t.Fatal(err)
	}
	close(held)
	choirtest.Eventually(t, time.Minute, "it rests", func() bool { return !h.d.Busy() })
	other := h.submit("ask me")
	h.gone(other)
	if h.d.Parked(run) {
		t.Error("it is parked")
	}
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), other, h.events("question.asked")[0].(*contract.QuestionAsked).Question.ID, "a"); err != nil {
		t.Fatal(err)
	}
	h.report(other)
	if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandResume); err != nil {
		t.Fatal(err)
	}
	h.report(run)
	h.quiet()
	if n := len(h.events("task.started")); n != 1 {
		t.Errorf("its loop was started %d times", n)
	}
}

// TestWordsMeetARunThatIsParkedJustThen: whoever says something to a run just when it is parked is heard, once.
func TestWordsMeetARunThatIsParkedJustThen(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	h.tune = func(o *dispatch.Options) { o.Times.Park = time.Millisecond }
	h.wake()
	h.asker()
	run := h.submit("ask me")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	const people, words = 3, 20
	var speaking sync.WaitGroup
	for range people {
		speaking.Go(func() {
			for range words {
				choirtest.Eventually(t, time.Minute, "the run waits, and may be parked", func() bool { return h.d.Asking(run) == 1 || h.d.Parked(run) })
				if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Hear me."); err != nil {
					t.Error(err)
				}
			}
		})
	}
	speaking.Wait()
	h.answer(run, q.ID)
	h.report(run)
	h.quiet()
	if n := len(h.events("run.steered")); n != people*words {
		t.Errorf("%d words", n)
	}
	if n := len(h.events("run.reported")); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Hear me."); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that has ended was told something: %v", err)
	}
}

// heldWord holds up the storing of a word.
type heldWord struct {
	ports.Log
	begun, goOn chan struct{}
}

func (l *heldWord) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if drafts[0].Type == "run.steered" {
		close(l.begun)
		<-l.goOn
	}
	return l.Log.Append(ctx, drafts...)
}

// TestARunThatIsToldSomethingIsNotParked: what is being stored would otherwise find nobody who has it.
func TestARunThatIsToldSomethingIsNotParked(t *testing.T) {
	h := newHouse(t)
	word := &heldWord{begun: make(chan struct{}), goOn: make(chan struct{})}
	h.sleep()
	h.wrap = func(l ports.Log) ports.Log { word.Log = l; return word }
	h.parking()
	h.asker()
	run := h.submit("ask me")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	said := make(chan error, 1)
	go func() {
		_, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Hear me.")
		said <- err
	}()
	<-word.begun
	other := h.submit("ask me, too")
	h.gone(other)
	if h.d.Parked(run) {
		t.Error("it was parked while somebody said something to it")
	}
	close(word.goOn)
	if err := <-said; err != nil {
		t.Error(err)
	}
	h.answer(run, q.ID)
	h.report(run)
	h.answer(other, h.events("question.asked")[1].(*contract.QuestionAsked).Question.ID)
	h.report(other)
	h.quiet()
}

// slowEnd holds up the question what the log ends with, which is asked for a run that leaves this process, once a question
// was stored.
type slowEnd struct {
	ports.Log
	armed       atomic.Bool
	begun, goOn chan struct{}
}

func (l *slowEnd) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.armed.CompareAndSwap(false, drafts[0].Type == "question.asked")
	return l.Log.Append(ctx, drafts...)
}

func (l *slowEnd) Last() uint64 {
	if l.armed.CompareAndSwap(true, false) {
		close(l.begun)
		<-l.goOn
	}
	return l.Log.Last()
}

// TestNothingIsSaidToARunThatIsBeingParked: whoever wants to waits until it has left, and it then goes on from the log.
func TestNothingIsSaidToARunThatIsBeingParked(t *testing.T) {
	h := newHouse(t)
	end := &slowEnd{begun: make(chan struct{}), goOn: make(chan struct{})}
	h.sleep()
	h.wrap = func(l ports.Log) ports.Log { end.Log = l; return end }
	h.parking()
	h.asker()
	run := h.submit("ask me")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	<-end.begun
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := h.d.Steer(impatient, contract.Person("u"), run, "Hear me."); err == nil || len(h.events("run.steered")) > 0 {
		t.Errorf("it was said to a run that leaves: %v", err)
	}
	close(end.goOn)
	if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "Hear me."); err != nil {
		t.Error(err)
	}
	h.answer(run, q.ID)
	h.report(run)
	h.quiet()
}
