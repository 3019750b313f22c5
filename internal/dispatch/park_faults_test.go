package dispatch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// TestParked_ALookAtTwoReviewsWhileTheDiskIsFull: looking at a parked run's work changes nothing of it.
func TestParked_ALookAtTwoReviewsWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			l := &full{}
			h.sleep()
			h.wrap = func(inner ports.Log) ports.Log { l.Log = inner; return l }
			h.parkingWith(park, func(o *dispatch.Options) { o.Review = true })
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

// TestParked_AReviewAndAQuestionAtOnce: a Director's box delegates and asks at the same time. The question has its deadline though
// the work waits to be looked at.
func TestParked_AReviewAndAQuestionAtOnce(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, func(o *dispatch.Options) { o.Review = true })
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

// TestParkingAfterStandingStillWaitsForNobody: the process was stopped just before a parked run's timer is set. Whoever reads
// the clock first tells the dispatcher that it stood still, and here it is the dispatcher, with its lock held.
func TestParkingAfterStandingStillWaitsForNobody(t *testing.T) {
	if os.Getenv("PARK_CHILD") != "" {
		runtime.GOMAXPROCS(1)
		h := newHouse(t)
		var armed atomic.Bool
		h.parkingWith(20*time.Millisecond, func(o *dispatch.Options) {
			o.Now = func() time.Time {
				if armed.Load() {
					var pcs [30]uintptr
					frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
					for more := true; more; {
						var f runtime.Frame
						f, more = frames.Next()
						if strings.HasSuffix(f.Function, "(*run).parked") && armed.CompareAndSwap(true, false) {
							fmt.Println("PARK ready")
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
			fmt.Println("PARK alive")
		case <-time.After(10 * time.Second):
			buf := make([]byte, 1<<20)
			for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
				if strings.Contains(g, "stoodStill") {
					fmt.Println("PARK stuck: " + strings.ReplaceAll(g, "\n", " | "))
				}
			}
			fmt.Println("PARK dead")
		}
		os.Exit(0)
	}
	for try := range 4 { // its own tick may read the clock before it
		if said := stoppedChild(t); !strings.Contains(said, "PARK alive") {
			t.Fatalf("try %d: %s", try, said)
		}
	}
}

// stoppedChild stops a child for seven seconds where it asks for that, and returns what it said.
func stoppedChild(t *testing.T) string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestParkingAfterStandingStillWaitsForNobody$", "-test.v")
	cmd.Env = append(os.Environ(), "PARK_CHILD=1")
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.Contains(line, "PARK ready"):
			time.Sleep(50 * time.Millisecond)
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(line, "PARK"):
			said += line + "\n"
		}
	}
	return said
}

// TestParked_NothingOfARunThatHasEndedIsLeft: what it ran under does not hang on the dispatcher's context any more.
func TestParked_NothingOfARunThatHasEndedIsLeft(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.asks(600)
	run := h.submit("ask me")
	q := h.question(run)
	ctx := h.d.Awake(run)
	h.answer(run, q)
	h.report(run)
	choirtest.Eventually(t, time.Minute, "it is left", func() bool { return ctx.Err() != nil })
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

// TestParked_AStoreThatIsAwayForSecondsEndsNoRun: a run that waits needs nothing of its past. A parked one does, and is told that all
// of it is lost when it can't be read for two seconds.
func TestParked_AStoreThatIsAwayForSecondsEndsNoRun(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			l := &unread{}
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

// TestParkedRunsUnderPressure is what was tried and held.
func TestParkedRunsUnderPressure(t *testing.T) {
	t.Run("cancelled twice, without a slot", func(t *testing.T) {
		h := newHouse(t)
		h.parkingWith(20*time.Millisecond, func(o *dispatch.Options) { o.Runs = 1 })
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
		h.parkingWith(20*time.Millisecond, nil)
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
		h.parkingWith(time.Millisecond, nil)
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
		h.answer(run, q)
		h.told(run, "run.reported", nil)
	})
}

// TestParked_AReviewOfFixedStepsIsParked: its steps are not made again because somebody looks.
func TestParked_AReviewOfFixedStepsIsParked(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.parkingWith(20*time.Millisecond, func(o *dispatch.Options) { o.Review = true })
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

// TestParked_AWordSaidAgainUnderItsIDIsTheSame while the run is parked, and what is said then is heard once.
func TestParked_AWordSaidAgainUnderItsIDIsTheSame(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.parkingWith(20*time.Millisecond, nil)
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

// TestParked_TwoQuestionsInOneTurn: each is asked once, in a parked run, too.
func TestParked_TwoQuestionsInOneTurn(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, nil)
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
				if park < time.Hour && i == 1 { // before, the second question would be lost
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

// TestParked_WhatATurnDidBeforeItAskedIsTold: a Director plans and asks in one turn. That the plan is written down is told to it with
// the answer.
func TestParked_WhatATurnDidBeforeItAskedIsTold(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"parked": 20 * time.Millisecond, "not parked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.parkingWith(park, nil)
			said := make(chan string, 9)
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(use("p", "revise_plan", m{"objective": "Know the colour", "plan": []m{{"text": "ask"}}}),
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
				}
			}
		})
	}
}
