package dispatch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
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

// eyes wakes the house with a dispatcher that parks after a time, and with an index that can be held up.
func (h *house) eyes(park time.Duration, tune func(*dispatch.Options)) *past {
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

// TestEyesADeadlineIsTakenThoughTheLogCouldNotBeReadJustThen: one failed reading when a parked run's time is up, and nobody ever
// tries again.
func TestEyesADeadlineIsTakenThoughTheLogCouldNotBeReadJustThen(t *testing.T) {
	h := newHouse(t)
	p := h.eyes(20*time.Millisecond, nil)
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

// TestEyesARunIsNotTakenUpFromAnOldStory: two say something to a parked run. What one of them has read is old when it goes on: the
// run has been taken up by the other and has ended.
func TestEyesARunIsNotTakenUpFromAnOldStory(t *testing.T) {
	h := newHouse(t)
	p := h.eyes(20*time.Millisecond, nil)
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

// TestEyesADeadlineNeedsNoSlot (fails without parking, too: the default is said only once the run has its slot again): a question whose run is parked is answered by its default in time though other runs go on.
func TestEyesADeadlineNeedsNoSlot(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, func(o *dispatch.Options) { o.Runs = 1 })
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

// TestEyesAPausedRunsQuestionHasItsDeadline: without parking it is answered by its default in time.
func TestEyesAPausedRunsQuestionHasItsDeadline(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, nil)
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

// TestEyesAWaitForASlotIsNotARunsTime: the user answers while another run has the only slot.
func TestEyesAWaitForASlotIsNotARunsTime(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, func(o *dispatch.Options) { o.Runs = 1 })
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

// TestEyesAWordDoesNotUseUpTheTimeOfARunThatStillWaits: a word that is no answer, and then hours in the queue.
func TestEyesAWordDoesNotUseUpTheTimeOfARunThatStillWaits(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, func(o *dispatch.Options) { o.Runs = 1 })
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

// TestEyesAQuestionThatIsBeingParkedKeepsTheComputerAwake asks again and again while runs are parked.
func TestEyesAQuestionThatIsBeingParkedKeepsTheComputerAwake(t *testing.T) {
	h := newHouse(t)
	h.eyes(time.Millisecond, nil)
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

// TestEyesAWordRightAfterStandingStill: the machine was suspended for an hour. Its user comes back, and says something before it
// could be recorded that it stood still, or that could not be recorded at once: the question's time is not over.
func TestEyesAWordRightAfterStandingStill(t *testing.T) {
	for how, park := range map[string]time.Duration{"slow, parked": 20 * time.Millisecond, "slow, not parked": time.Hour, "refused once, parked": 20 * time.Millisecond, "refused once, not parked": time.Hour} {
		t.Run(how, func(t *testing.T) {
			h := newHouse(t)
			l := &still{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.eyes(park, nil)
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

// TestEyesAnAnswerThatWasPaidIsNotAskedForAgain: the user pauses the run while its Director thinks, and resumes it later.
func TestEyesAnAnswerThatWasPaidIsNotAskedForAgain(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, func(o *dispatch.Options) { o.Models = settling{h.model} })
			thinks, held := make(chan struct{}, 9), make(chan struct{})
			var answers atomic.Int64
			h.model.director = func(int, contract.TurnRequest) []contract.Part {
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
			if park < time.Hour {
				h.gone(run)
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

// TestEyesAFullDiskEndsNoRunThatIsTakenUp: what is taken up has to move, which the log does not take just then. The run goes on
// when it does, and is not ended by it.
func TestEyesAFullDiskEndsNoRunThatIsTakenUp(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			l := &full{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.eyes(park, nil)
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

// TestEyesALookAtTwoReviewsWhileTheDiskIsFull: looking at a parked run's work changes nothing of it.
func TestEyesALookAtTwoReviewsWhileTheDiskIsFull(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			l := &full{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.eyes(park, func(o *dispatch.Options) { o.Review = true })
			other := m{"kind": "agent", "goal": "Make x.css blue", "tools": []string{"read", "edit", "write", "bash"}}
			h.model.director = plan(agentTask, other)
			h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
				if prompted(req, "Make x.css blue") {
					return steps(blue)(n, req)
				}
				return steps(edit("c1"))(n, req)
			}
			run := h.submit("go")
			choirtest.Eventually(t, time.Minute, "both wait", func() bool { return len(h.events("review.requested")) == 2 && !h.d.Busy() })
			if park < time.Hour {
				h.gone(run)
			}
			l.kind.Store("run.moved")
			if _, err := h.d.Review(t.Context(), run, h.task()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			for _, r := range h.results() {
				t.Errorf("its user only looked, and it ended: %s %s", r.Status, r.Summary)
			}
			for _, r := range h.events("run.reported") {
				t.Errorf("its user only looked, and the run ended: %+v", r)
			}
		})
	}
}

// TestEyesAReviewAndAQuestionAtOnce: a Director's box delegates and asks at the same time. The question has its deadline though
// the work waits to be looked at.
func TestEyesAReviewAndAQuestionAtOnce(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, func(o *dispatch.Options) { o.Review = true })
			h.model.associate = steps(blue, edit("c1"))
			h.boxes.rogue = func(host *http.Client) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					post := func(path string, body any) {
						req := must(http.NewRequestWithContext(r.Context(), http.MethodPost, "http://host"+path, strings.NewReader(string(must(json.Marshal(body))))))
						req.Header.Set("Content-Type", "application/json")
						if resp, err := host.Do(req); err == nil {
							resp.Body.Close()
						}
					}
					stop := make(chan struct{})
					defer close(stop)
					done := make(chan struct{})
					go func() {
						var both sync.WaitGroup
						both.Go(func() { post("/tasks", m{"call": "d0", "tasks": []m{agentTask}}) })
						both.Go(func() {
							post("/ask", m{"call": "q", "text": "Which?", "choices": []string{"a", "b"}, "default": "a", "deadline_s": 12})
						})
						both.Wait()
						close(done)
					}()
					for {
						select {
						case <-done:
							<-r.Context().Done()
							return
						case <-r.Context().Done():
							return
						case <-time.After(50 * time.Millisecond):
							fmt.Fprintln(w, "{}")
							w.(http.Flusher).Flush()
						}
					}
				})
			}
			run := h.submit("go")
			h.review(run, 1)
			h.question(run)
			if park < time.Hour {
				h.gone(run)
			}
			if a := h.answered(25 * time.Second); a == nil || !a.Default {
				t.Errorf("13 seconds after its deadline, the answer is %+v; parked: %v; %+v", a, h.d.Parked(run), h.d.Health(10))
			}
		})
	}
}

// TestEyesParkingAfterStandingStillWaitsForNobody: the process was stopped just before a parked run's timer is set. Whoever reads
// the clock first tells the dispatcher that it stood still, and here it is the dispatcher, with its lock held.
func TestEyesParkingAfterStandingStillWaitsForNobody(t *testing.T) {
	if os.Getenv("EYES_CHILD") != "" {
		runtime.GOMAXPROCS(1)
		h := newHouse(t)
		var armed atomic.Bool
		h.eyes(20*time.Millisecond, func(o *dispatch.Options) {
			o.Now = func() time.Time {
				if armed.Load() {
					var pcs [30]uintptr
					frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
					for more := true; more; {
						var f runtime.Frame
						f, more = frames.Next()
						if strings.HasSuffix(f.Function, "(*run).parked") && armed.CompareAndSwap(true, false) {
							fmt.Println("EYES ready")
							for last := time.Now(); ; {
								now := time.Now()
								if now.Sub(last) > 5500*time.Millisecond {
									return now
								}
								last = now
							}
						}
					}
				}
				return time.Now()
			}
		})
		h.asks(600)
		armed.Store(true)
		h.submit("ask me")
		time.Sleep(time.Second)
		alive := make(chan struct{})
		go func() { h.d.Health(10); close(alive) }()
		select {
		case <-alive:
			fmt.Println("EYES alive")
		case <-time.After(10 * time.Second):
			buf := make([]byte, 1<<20)
			for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
				if strings.Contains(g, "stoodStill") {
					fmt.Println("EYES stuck: " + strings.ReplaceAll(g, "\n", " | "))
				}
			}
			fmt.Println("EYES dead")
		}
		os.Exit(0)
	}
	for try := range 4 { // its own tick may read the clock before it
		if said := eyesStopped(t); !strings.Contains(said, "EYES alive") {
			t.Fatalf("try %d: %s", try, said)
		}
	}
}

// eyesStopped stops a child for seven seconds where it asks for that, and returns what it said.
func eyesStopped(t *testing.T) string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestEyesParkingAfterStandingStillWaitsForNobody$", "-test.v")
	cmd.Env = append(os.Environ(), "EYES_CHILD=1")
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.Contains(line, "EYES ready"):
			time.Sleep(50 * time.Millisecond)
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(line, "EYES"):
			said += line + "\n"
		}
	}
	return said
}

// TestEyesNothingOfARunThatHasEndedIsLeft: no context of it hangs on the dispatcher's.
func TestEyesNothingOfARunThatHasEndedIsLeft(t *testing.T) {
	h := newHouse(t)
	h.asks(600)
	one := func() {
		run := h.submit("be quick")
		h.report(run)
		choirtest.Eventually(t, time.Minute, "it has ended", func() bool { return len(h.d.Health(10)) == 0 })
		time.Sleep(50 * time.Millisecond)
	}
	one()
	before := h.d.Hanging()
	for range 10 {
		one()
	}
	if after := h.d.Hanging(); after > before {
		t.Errorf("%d contexts, and after ten more runs %d", before, after)
	}
}

// unread is a log whose blobs can't be read for a while.
type unread struct {
	ports.Log
	until atomic.Int64
}

func (l *unread) Payload(ctx context.Context, e contract.Event) (contract.Payload, error) {
	if e.Type == "turn.recorded" && time.Now().UnixNano() < l.until.Load() {
		return nil, fault.New("log", fault.Unavailable, "", errors.New("too many open files"))
	}
	return l.Log.Payload(ctx, e)
}

// TestEyesAStoreThatIsAwayForSecondsEndsNoRun: a run that waits needs nothing of its past. A parked one does, and is told that all
// of it is lost when it can't be read for two seconds.
func TestEyesAStoreThatIsAwayForSecondsEndsNoRun(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			l := &unread{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.eyes(park, nil)
			h.asks(600)
			run := h.submit("ask me")
			q := h.question(run)
			choirtest.Eventually(t, time.Minute, "it rests", func() bool { return !h.d.Busy() })
			if park < time.Hour {
				h.gone(run)
			}
			l.until.Store(time.Now().Add(3 * time.Second).UnixNano())
			_, err := h.d.Steer(t.Context(), contract.Person("u"), run, "I think about it.")
			time.Sleep(4 * time.Second)
			if rs := h.events("run.reported"); len(rs) > 0 {
				t.Fatalf("the word: %v; its question is open, and it was ended: %+v", err, rs[0])
			}
			h.answer(run, q)
			h.report(run)
		})
	}
}

// TestEyesHeld is what was tried and held.
func TestEyesHeld(t *testing.T) {
	t.Run("cancelled twice, without a slot", func(t *testing.T) {
		h := newHouse(t)
		h.eyes(20*time.Millisecond, func(o *dispatch.Options) { o.Runs = 1 })
		h.asks(600)
		held := make(chan struct{})
		ask := h.model.director
		h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
			if !prompted(req, "ask me") {
				<-held
			}
			return ask(n, req)
		}
		run := h.submit("ask me")
		h.question(run)
		h.gone(run)
		long := h.submit("be long")
		h.told(long, "run.started", nil)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil && !fault.Is(err, fault.NotFound) {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if r := h.report(run); r.Status != contract.RunCancelled {
			t.Errorf("%+v", r)
		}
		close(held)
		h.report(long)
	})
	t.Run("two answer at once, and the prompt comes again", func(t *testing.T) {
		h := newHouse(t)
		h.eyes(20*time.Millisecond, nil)
		h.asks(600)
		for range 20 {
			id := contract.NewID()
			run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{ID: id, By: contract.Person("u"), Text: "ask me"})
			if err != nil {
				t.Fatal(err)
			}
			q := h.question(run)
			h.gone(run)
			if again, _, err := h.d.Submit(t.Context(), dispatch.Prompt{ID: id, By: contract.Person("u"), Text: "ask me"}); err != nil || again != run || !h.d.Parked(run) {
				t.Errorf("%s, %v", again, err)
			}
			var taken atomic.Int64
			var both sync.WaitGroup
			for _, a := range []string{"red", "blue"} {
				both.Go(func() {
					_, err := h.d.Answer(t.Context(), contract.Person("u"), run, q, a)
					if err == nil {
						taken.Add(1)
					} else if !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
						t.Error(err)
					}
				})
			}
			both.Wait()
			if taken.Load() != 1 {
				t.Errorf("%d answers were taken", taken.Load())
			}
			h.report(run)
		}
	})
	t.Run("closed at any moment", func(t *testing.T) {
		h := newHouse(t)
		h.eyes(time.Millisecond, nil)
		h.asks(600)
		run := h.submit("ask me")
		q := h.question(run)
		acked := 0
		for i := range 25 {
			ctx, stop := context.WithCancel(t.Context())
			d := h.d
			said := make(chan int, 1)
			go func() {
				n := 0
				for ctx.Err() == nil {
					if _, err := d.Steer(ctx, contract.Person("u"), run, "Hear me."); err == nil {
						n++
					}
				}
				said <- n
			}()
			time.Sleep(time.Duration(i) * 4 * time.Millisecond)
			h.d.Close()
			stop()
			acked += <-said
			h.log.Close()
			h.d = nil
			h.wake()
			if err := h.d.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		stored := 0
		for after := uint64(0); ; {
			es := must(h.log.Read(t.Context(), after, 500))
			if len(es) == 0 {
				break
			}
			for _, e := range es {
				after = e.Sequence
				if e.Type == "run.steered" {
					stored++
				}
			}
		}
		if stored < acked {
			t.Errorf("%d acknowledged, %d stored", acked, stored)
		}
		t.Logf("%d acknowledged, %d stored", acked, stored)
		h.answer(run, q)
		h.told(run, "run.reported", nil)
	})
}

// TestEyesAReviewOfFixedStepsIsParked: its steps are not made again because somebody looks.
func TestEyesAReviewOfFixedStepsIsParked(t *testing.T) {
	h := newHouse(t)
	h.eyes(20*time.Millisecond, func(o *dispatch.Options) { o.Review = true })
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "workspace/b.sh", "content": "echo b\n"}}, {"run": m{"argv": []string{"bash", "workspace/b.sh"}}}}})
	run := h.submit("go")
	r := h.review(run, 1)
	for range 3 {
		h.gone(run)
		if v, err := h.d.Review(t.Context(), run, h.task()); err != nil || len(v.Files) != 1 {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	h.gone(run)
	if err := h.look(run, r, take); err != nil {
		t.Error(err)
	}
	h.report(run)
	h.quiet()
	if n := len(h.events("review.requested")); n != 1 {
		t.Errorf("%d reviews", n)
	}
	if n := len(h.events("task.started")); n > 1 {
		t.Errorf("%d starts", n)
	}
}

// TestEyesAWordSaidAgainUnderItsIDIsTheSame while the run is parked, and what is said then is heard once.
func TestEyesAWordSaidAgainUnderItsIDIsTheSame(t *testing.T) {
	h := newHouse(t)
	h.eyes(20*time.Millisecond, nil)
	h.asks(600)
	run := h.submit("ask me")
	q := h.question(run)
	h.gone(run)
	w := dispatch.Word{ID: contract.NewID(), By: contract.Person("u"), Run: run}
	first, err := h.d.Do(t.Context(), w, &contract.RunSteered{Text: "once"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.gone(run)
		again, err := h.d.Do(t.Context(), w, &contract.RunSteered{Text: "once"})
		if err != nil || again != first {
			t.Errorf("%d, then %d, %v", first, again, err)
		}
	}
	a := dispatch.Word{ID: contract.NewID(), By: contract.Person("u"), Run: run}
	h.gone(run)
	for range 2 {
		if _, err := h.d.Do(t.Context(), a, &contract.QuestionAnswered{Question: q, Answer: "blue"}); err != nil {
			t.Error(err)
		}
	}
	h.report(run)
	if n := len(h.events("run.steered")); n != 1 {
		t.Errorf("%d words", n)
	}
}

// TestEyesTwoQuestionsInOneTurn: each is asked once, in a parked run, too.
func TestEyesTwoQuestionsInOneTurn(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, nil)
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(use("q1", "ask_user", m{"text": "Which?", "choices": []string{"a", "b"}, "default": "a", "deadline_s": 600}),
						use("q2", "ask_user", m{"text": "How?", "choices": []string{"c", "d"}, "default": "c", "deadline_s": 600}))
				}
				return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
			}
			run := h.submit("ask me")
			for i := range 2 {
				for end := time.Now().Add(10 * time.Second); len(h.events("question.asked")) != i+1; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("question %d is not asked\n%s", i+1, h.story())
					}
				}
				if park < time.Hour {
					h.gone(run)
				}
				q := h.events("question.asked")[i].(*contract.QuestionAsked).Question
				if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, q.Choices[1]); err != nil {
					t.Fatal(err)
				}
			}
			if r := h.report(run); r.Status != contract.RunDone {
				t.Errorf("%+v", r)
			}
			if n := len(h.model.seen); n != 2 {
				t.Errorf("the model was asked %d times", n)
			}
		})
	}
}

// TestEyesWhatATurnDidBeforeItAskedIsTold: a Director looks at a file, plans and asks in one turn. What it saw is told to it with
// the answer.
func TestEyesWhatATurnDidBeforeItAskedIsTold(t *testing.T) {
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.eyes(park, nil)
			said := make(chan string, 9)
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(use("p", "revise_plan", m{"objective": "Know the colour", "plan": []m{{"text": "ask"}}}),
						use("l", "read", m{"path": "workspace/a.sh"}),
						use("q", "ask_user", m{"text": "Which?", "choices": []string{"a", "b"}, "default": "a", "deadline_s": 600}))
				}
				for _, p := range req.Messages[len(req.Messages)-1].Parts {
					if p.Return != nil {
						said <- p.Return.ID + ": " + p.Return.Content
					}
				}
				return parts(use("r", "report", m{"status": "done", "summary": "Done."}))
			}
			run := h.submit("ask me")
			q := h.question(run)
			if park < time.Hour {
				h.gone(run)
			}
			if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q, "b"); err != nil {
				t.Fatal(err)
			}
			h.report(run)
			close(said)
			for s := range said {
				if strings.Contains(s, "restarted") {
					t.Errorf("the Director is told %q; planned: %d", s, len(h.events("run.planned")))
				} else {
					t.Logf("%.100q", s)
				}
			}
		})
	}
}
