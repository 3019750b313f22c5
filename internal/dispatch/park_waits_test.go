package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// past is an index of the log whose answers can be held up, or fail.
type past struct {
	ports.Past
	mu     sync.Mutex
	before func(run string) error
	after  func(run string)
}

func (p *past) RunEvents(ctx context.Context, run string, after uint64) ([]contract.Event, uint64, bool, error) {
	p.mu.Lock()
	before, then := p.before, p.after
	p.mu.Unlock()
	if before != nil {
		if err := before(run); err != nil {
			return nil, 0, false, err
		}
	}
	es, next, more, err := p.Past.RunEvents(ctx, run, after)
	if then != nil {
		then(run)
	}
	return es, next, more, err
}

func (p *past) set(before func(string) error, after func(string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

// parkingWith wakes the house with a dispatcher that parks after a time, and with an index that can be held up.
func (h *house) parkingWith(park time.Duration, tune func(*dispatch.Options)) *past {
	h.sleep()
	p := &past{}
	h.tune = func(o *dispatch.Options) {
		o.Now, o.Times.Park = h.logsClock, park
		p.Past = o.Past
		o.Past = p
		if tune != nil {
			tune(o)
		}
	}
	h.wake()
	return p
}

// asks has the Director ask with so many seconds of patience, and report the answer.
func (h *house) asks(patience int) {
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 && prompted(req, "ask me") {
			return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red", "deadline_s": patience}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
	}
}

func (h *house) question(run string) string {
	h.t.Helper()
	return h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question.ID
}

// answered waits so long for a question's answer.
func (h *house) answered(within time.Duration) *contract.QuestionAnswered {
	h.t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if es := h.events("question.answered"); len(es) > 0 {
			return es[0].(*contract.QuestionAnswered)
		}
	}
	return nil
}

// TestParked_ADeadlineIsTakenThoughTheLogCouldNotBeReadJustThen: one failed reading when a parked run's time is up, and nobody ever
// tries again.
func TestParked_ADeadlineIsTakenThoughTheLogCouldNotBeReadJustThen(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := h.parkingWith(20*time.Millisecond, nil)
	h.asks(5)
	run := h.submit("ask me")
	h.question(run)
	h.gone(run)
	var failed atomic.Bool
	p.set(func(string) error {
		if failed.CompareAndSwap(false, true) {
			return fault.New("index", fault.Unavailable, "", errors.New("the index is not there just now"))
		}
		return nil
	}, nil)
	if a := h.answered(25 * time.Second); a == nil {
		t.Errorf("20 seconds after its deadline the question waits; the reading failed: %v, it is parked: %v", failed.Load(), h.d.Parked(run))
	}
}

// TestParked_ARunIsNotTakenUpFromAnOldStory: two say something to a parked run. What one of them has read is old when it goes on: the
// run has been taken up by the other and has ended.
func TestParked_ARunIsNotTakenUpFromAnOldStory(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := h.parkingWith(20*time.Millisecond, nil)
	h.asks(600)
	run := h.submit("ask me")
	q := h.question(run)
	h.gone(run)
	read, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	p.set(nil, func(string) {
		if first.CompareAndSwap(false, true) {
			close(read)
			<-goOn
		}
	})
	said := make(chan error, 1)
	go func() {
		_, err := h.d.Steer(t.Context(), contract.Person("u"), run, "And make it shine.")
		said <- err
	}()
	<-read
	h.answer(run, q)
	h.report(run)
	choirtest.Eventually(t, time.Minute, "it has ended", func() bool { return len(h.d.Health(10)) == 0 })
	h.model.mu.Lock()
	asked := len(h.model.seen)
	h.model.mu.Unlock()
	close(goOn)
	err := <-said
	choirtest.Eventually(t, time.Minute, "nothing is left", func() bool { return len(h.d.Health(10)) == 0 })
	h.model.mu.Lock()
	more := len(h.model.seen) - asked
	h.model.mu.Unlock()
	if err == nil {
		t.Errorf("a word was taken by a run that had reported; steered: %d, reported: %d\n%s", len(h.events("run.steered")), len(h.events("run.reported")), h.story())
	}
	if len(h.events("run.steered")) > 0 {
		t.Errorf("a word was stored behind the report (%v)", err)
	}
	if more > 0 {
		t.Errorf("the model was asked %d times by a run that had ended", more)
	}
}

// TestParked_ADeadlineNeedsNoSlot: a question whose run is parked is answered by its default in time though other runs go on.
func TestParked_ADeadlineNeedsNoSlot(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, func(o *dispatch.Options) { o.Runs = 1 })
			h.asks(5)
			held := make(chan struct{})
			defer close(held)
			ask := h.model.director
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if !prompted(req, "ask me") {
					select {
					case <-held:
					case <-time.After(time.Minute):
					}
				}
				return ask(n, req)
			}
			run := h.submit("ask me")
			h.question(run)
			if park < time.Hour {
				h.gone(run)
			}
			long := h.submit("be long")
			h.told(long, "run.started", nil)
			if a := h.answered(20 * time.Second); a == nil || !a.Default {
				t.Errorf("15 seconds after its deadline, the answer is %+v; parked: %v; %+v", a, h.d.Parked(run), h.d.Health(10))
			}
		})
	}
}

// TestParked_APausedRunsQuestionHasItsDeadline: without parking it is answered by its default in time.
func TestParked_APausedRunsQuestionHasItsDeadline(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, nil)
			h.asks(5)
			run := h.submit("ask me")
			h.question(run)
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandPause); err != nil {
				t.Fatal(err)
			}
			if park < time.Hour {
				h.gone(run)
			}
			if a := h.answered(20 * time.Second); a == nil || !a.Default {
				t.Errorf("15 seconds after its deadline, the answer is %+v; %+v", a, h.d.Health(10))
			}
		})
	}
}

// TestParked_AWaitForASlotIsNotARunsTime: the user answers while another run has the only slot.
func TestParked_AWaitForASlotIsNotARunsTime(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, func(o *dispatch.Options) { o.Runs = 1 })
			h.asks(600)
			held := make(chan struct{})
			ask := h.model.director
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if !prompted(req, "ask me") {
					select {
					case <-held:
					case <-time.After(time.Minute):
					}
				}
				return ask(n, req)
			}
			run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "ask me", Budget: contract.Budget{WallS: 6}})
			if err != nil {
				t.Fatal(err)
			}
			q := h.question(run)
			if park < time.Hour {
				h.gone(run)
			}
			long := h.submit("be long")
			h.told(long, "run.started", nil)
			h.answer(run, q)
			time.Sleep(8 * time.Second) // the other run works for so long
			close(held)
			if r := h.report(run); r.Status != contract.RunDone {
				t.Errorf("%s: %s", r.Status, r.Summary)
			}
		})
	}
}

// TestParked_AWordDoesNotUseUpTheTimeOfARunThatStillWaits: a word that is no answer, and then hours in the queue.
func TestParked_AWordDoesNotUseUpTheTimeOfARunThatStillWaits(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, func(o *dispatch.Options) { o.Runs = 1 })
			h.asks(600)
			held := make(chan struct{})
			ask := h.model.director
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if !prompted(req, "ask me") {
					select {
					case <-held:
					case <-time.After(time.Minute):
					}
				}
				return ask(n, req)
			}
			run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "ask me", Budget: contract.Budget{WallS: 6}})
			if err != nil {
				t.Fatal(err)
			}
			q := h.question(run)
			if park < time.Hour {
				h.gone(run)
			}
			long := h.submit("be long")
			h.told(long, "run.started", nil)
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "I think about it."); err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second) // the other run works for so long
			close(held)
			h.report(long)
			h.answer(run, q)
			if r := h.report(run); r.Status != contract.RunDone {
				t.Errorf("%s: %s", r.Status, r.Summary)
			}
		})
	}
}

// TestParked_AQuestionThatIsBeingParkedKeepsTheComputerAwake asks again and again while runs are parked.
func TestParked_AQuestionThatIsBeingParkedKeepsTheComputerAwake(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.parkingWith(time.Millisecond, nil)
	h.asks(600)
	run := h.submit("ask me")
	q := h.question(run)
	var closed, looked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for range 4 {
		looking.Go(func() {
			for ctx.Err() == nil {
				looked.Add(1)
				if !h.d.Open() {
					closed.Add(1)
				}
			}
		})
	}
	for i := range 150 {
		choirtest.Eventually(t, time.Minute, "parked", func() bool { return h.d.Parked(run) })
		if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, fmt.Sprint("word ", i)); err != nil {
			t.Fatal(err)
		}
		if closed.Load() > 0 {
			break
		}
	}
	stop()
	looking.Wait()
	if n := closed.Load(); n > 0 {
		t.Errorf("%d of %d times nothing kept the computer awake, though a question waits", n, looked.Load())
	}
	h.answer(run, q)
	h.report(run)
}

// still holds up, or refuses once, what says that a run stood still.
type still struct {
	ports.Log
	refuse atomic.Bool
	hold   chan struct{}
}

func (l *still) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if drafts[0].Type == "run.stood" {
		if l.refuse.CompareAndSwap(true, false) {
			return nil, fault.New("log", fault.Unavailable, "", errors.New("the disk has just been woken, too"))
		}
		if l.hold != nil {
			select {
			case <-l.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return l.Log.Append(ctx, drafts...)
}

// TestParked_AWordRightAfterStandingStill: the machine was suspended for an hour. Its user comes back, and says something before it
// could be recorded that it stood still, or that could not be recorded at once: the question's time is not over.
func TestParked_AWordRightAfterStandingStill(t *testing.T) {
	t.Parallel()
	for how, park := range map[string]time.Duration{"slow, parked": 20 * time.Millisecond, "slow, not parked": time.Hour, "refused once, parked": 20 * time.Millisecond, "refused once, not parked": time.Hour} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			l := &still{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.parkingWith(park, nil)
			h.asks(600)
			run := h.submit("ask me")
			q := h.question(run)
			if park < time.Hour {
				h.gone(run)
			} else {
				choirtest.Eventually(t, time.Minute, "it waits", func() bool { return !h.d.Busy() })
			}
			if how[:4] == "slow" {
				l.hold = make(chan struct{})
				time.AfterFunc(time.Second, func() { close(l.hold) })
			} else {
				l.refuse.Store(true)
			}
			h.ahead.Add(int64(time.Hour))
			h.d.StoodStill(awake.Gap{For: time.Hour, Why: awake.Suspended})
			if how[:4] != "slow" {
				choirtest.Eventually(t, time.Minute, "it was refused", func() bool { return !l.refuse.Load() })
			}
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "I am back."); err != nil {
				t.Fatal(err)
			}
			if a := h.answered(3 * time.Second); a != nil {
				t.Fatalf("it was answered without its user: %+v", a)
			}
			h.answer(run, q)
			h.report(run)
		})
	}
}

// settling is a model whose answer waits, as the gateway has it, until its loop may go on with it: it was made, shown and paid.
type settling struct{ *script }

func (m settling) Handler(scope ports.ModelScope) http.Handler {
	inner := m.script.Handler(scope)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		if scope.Waiter != nil {
			if err := scope.Waiter.Settled(r.Context()); err != nil {
				return
			}
		}
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// TestParked_AnAnswerThatWasPaidIsNotAskedForAgain: the user pauses the run while its Director thinks, and resumes it later.
func TestParked_AnAnswerThatWasPaidIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, func(o *dispatch.Options) { o.Models = settling{h.model} })
			thinks, held := make(chan struct{}, 9), make(chan struct{})
			var answers atomic.Int64
			h.asks(600)
			ask := h.model.director
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if prompted(req, "ask me") {
					return ask(n, req)
				}
				thinks <- struct{}{}
				<-held
				answers.Add(1)
				return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
			}
			run := h.submit("think")
			<-thinks
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandPause); err != nil {
				t.Fatal(err)
			}
			close(held)
			choirtest.Eventually(t, time.Minute, "it rests", func() bool { return !h.d.Busy() })
			if park < time.Hour { // another run, which rests later, is parked
				other := h.submit("ask me")
				q := h.question(other)
				h.gone(other)
				if h.d.Parked(run) {
					t.Error("it was parked with an answer that was paid for")
				}
				h.answer(other, q)
				h.report(other)
			}
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandResume); err != nil {
				t.Fatal(err)
			}
			h.report(run)
			if n := answers.Load(); n != 1 {
				t.Errorf("the model was asked %d times for one turn", n)
			}
		})
	}
}

// full is a log that has no room for an event of a type, once.
type full struct {
	ports.Log
	kind atomic.Value
}

func (l *full) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if k, _ := l.kind.Load().(string); k != "" && drafts[0].Type == k {
		l.kind.Store("")
		return nil, fault.New("log", fault.DiskFull, "", syscall.ENOSPC)
	}
	return l.Log.Append(ctx, drafts...)
}

// TestParked_AFullDiskEndsNoRunThatIsTakenUp: what is taken up has to move, which the log does not take just then. The run goes on
// when it does, and is not ended by it.
func TestParked_AFullDiskEndsNoRunThatIsTakenUp(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			l := &full{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.parkingWith(park, nil)
			h.asks(600)
			run := h.submit("ask me")
			q := h.question(run)
			choirtest.Eventually(t, time.Minute, "it rests", func() bool { return !h.d.Busy() })
			if park < time.Hour {
				h.gone(run)
			}
			l.kind.Store("run.moved")
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "I think about it."); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if rs := h.events("run.reported"); len(rs) > 0 {
				t.Fatalf("its question is open, and it was ended: %+v", rs[0])
			}
			l.kind.Store("")
			h.answer(run, q)
			if r := h.report(run); r.Status != contract.RunDone {
				t.Errorf("%s: %s", r.Status, r.Summary)
			}
		})
	}
}
