package dispatch_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// TestWhatIsSaidAsADirectorReportsIsHeard shows that what the user says while the last answer of a Director is under
// way holds its report up: it is told the words first, each time there are new ones.
func TestWhatIsSaidAsADirectorReportsIsHeard(t *testing.T) {
	h := newHouse(t)
	var run string
	ready := make(chan struct{})
	said := []string{"STOP, paint it red", "no, green"}
	h.model.gate = func(_ contract.ActorKind, n int) {
		<-ready
		if n < len(said) {
			if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, said[n]); err != nil {
				t.Error(err)
			}
		}
	}
	var last string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		last = saidTo(req)
		return parts(use("r"+string(rune('0'+n)), "report", m{"status": "done", "summary": "Answer " + string(rune('0'+n))}))
	}
	run = h.submit("paint it blue")
	close(ready)
	rep := h.report(run)
	h.quiet()
	for _, want := range []string{"The user says (1): STOP, paint it red", "The user says (2): no, green"} {
		if strings.Count(last, want) != 1 {
			t.Errorf("the Director was not told once: %q\n%s", want, last)
		}
	}
	if rep.Status != contract.RunDone || !strings.HasPrefix(rep.Summary, "Answer 2") {
		t.Errorf("the report is %+v\n%s", rep, h.story())
	}
}

// TestWhatIsSaidToARunThatEndsIsHeardOrRefused says something to runs at the instant in which they report: what was
// taken was told.
func TestWhatIsSaidToARunThatEndsIsHeardOrRefused(t *testing.T) {
	h := newHouse(t)
	var mu sync.Mutex
	told := ""
	answers := make(chan struct{}, 100)
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		mu.Lock()
		defer mu.Unlock()
		told = saidTo(req)
		answers <- struct{}{}
		return parts(use("r"+string(rune('0'+n)), "report", m{"status": "done", "summary": "Done."}))
	}
	taken, refused := 0, 0
	for n := range 12 {
		run := h.submit("go")
		<-answers
		for end := time.Now().Add(time.Duration(n) * time.Millisecond); time.Now().Before(end); {
			runtime.Gosched() // the instant in which the report is taken is somewhere here
		}
		_, err := h.d.Steer(t.Context(), contract.Person("u"), run, "paint it red")
		h.report(run)
		h.quiet()
		mu.Lock()
		heard := strings.Contains(told, "The user says (1): paint it red")
		mu.Unlock()
		switch {
		case err == nil && !heard:
			t.Errorf("what was taken was told to nobody\n%s", h.story())
		case err == nil:
			taken++
		case !fault.Is(err, fault.NotFound):
			t.Error(err)
		default:
			refused++
		}
		for len(answers) > 0 {
			<-answers
		}
	}
	t.Logf("%d words were taken, %d refused", taken, refused)
}

// TestWhatIsSaidBehindARecordedReportIsHeard kills the process between a Director's report and the run's: what the user
// says to the run that is taken up reopens it.
func TestWhatIsSaidBehindARecordedReportIsHeard(t *testing.T) {
	h := newHouse(t)
	l := &fullLog{}
	l.full.Store(true)
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.sleep()
	h.wake()
	var last string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		last = saidTo(req)
		return parts(use("r"+string(rune('0'+n)), "report", m{"status": "done", "summary": "Answer " + string(rune('0'+n))}))
	}
	run := h.submit("paint it blue")
	choirtest.Eventually(t, time.Minute, "it has reported", func() bool { return l.refused.Load() > 0 })
	h.wrap = nil
	h.sleep()
	h.wake()
	if _, err := h.log.Append(t.Context(), contract.Draft{Actor: contract.Person("u"), Type: "run.steered", Subject: run, Run: run, Data: &contract.RunSteered{Text: "paint it red"}}); err != nil {
		t.Fatal(err)
	}
	if err := h.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	rep := h.report(run)
	h.quiet()
	if !strings.Contains(last, "The user says (1): paint it red") || !strings.HasPrefix(rep.Summary, "Answer 1") {
		t.Errorf("the report is %q and the Director was told:\n%s", rep.Summary, last)
	}
}

// TestWhatNobodyWasToldIsInTheReport: a Director that the host can't hold up, for it ended otherwise, does not end a
// run as done against its user's words.
func TestWhatNobodyWasToldIsInTheReport(t *testing.T) {
	h := newHouse(t)
	var run string
	ready := make(chan struct{})
	h.model.gate = func(contract.ActorKind, int) {
		<-ready
		if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "paint it red"); err != nil {
			t.Error(err)
		}
	}
	h.tune = func(o *dispatch.Options) { o.Turns = 1 }
	h.sleep()
	h.wake()
	h.model.director = func(int, contract.TurnRequest) []contract.Part {
		return parts(use("p", "revise_plan", m{"objective": "o", "plan": []m{{"text": "one"}}}))
	}
	run = h.submit("paint it blue")
	close(ready)
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunFailed || !strings.Contains(rep.Summary, "too late to be told to anybody: “paint it red”") {
		t.Errorf("the report is %+v", rep)
	}
}
