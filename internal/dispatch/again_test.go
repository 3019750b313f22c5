package dispatch_test

import (
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/actions"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestWhatIsSentAgainToARunIsDoneOnce sends what a person does to a run again with the same id, as a page does that lost the
// answer: it gets the same answer, and nothing is said, answered or commanded twice, also when the run has ended meanwhile.
func TestWhatIsSentAgainToARunIsDoneOnce(t *testing.T) {
	h := newHouse(t)
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "deadline_s": 600}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
	}
	run := h.submit("go")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	type sent struct {
		do    view.Action
		acted view.Acted
	}
	act := func(do view.Action) (view.Acted, error) {
		return (&actions.Actions{Log: h.log, Runs: h.d}).Act(t.Context(), do)
	}
	var all []sent
	first := func(p contract.Payload, eventType string) {
		t.Helper()
		do := view.Action{ID: contract.NewID(), Type: eventType, Run: run, By: contract.Person("u"), Data: p}
		acted, err := act(do)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sent{do, acted})
	}
	again := func(when string) {
		t.Helper()
		for _, s := range all {
			if acted, err := act(s.do); err != nil || acted != s.acted {
				t.Errorf("%s, %s again: %+v, %v; it was %+v", when, s.do.Type, acted, err, s.acted)
			}
		}
	}
	first(&contract.RunCommanded{Command: contract.CommandPause}, "run.commanded")
	first(&contract.RunCommanded{Command: contract.CommandResume}, "run.commanded")
	first(&contract.RunSteered{Text: "Hurry up."}, "run.steered")
	again("while it waits")
	first(&contract.QuestionAnswered{Question: q.ID, Answer: "blue"}, "question.answered")
	h.report(run)
	h.quiet()
	choirtest.Eventually(t, time.Minute, "nobody drives it any more", func() bool { return !h.d.Open() })
	again("when it has ended")
	for eventType, want := range map[string]int{"run.commanded": 2, "run.steered": 1, "question.answered": 1} {
		if got := len(h.events(eventType)); got != want {
			t.Errorf("%s is in the log %d times; want %d", eventType, got, want)
		}
	}
	// What is new is refused as ever, and so is another word under an id that was used.
	other := all[2].do
	other.Data = &contract.RunSteered{Text: "Slow down."}
	fresh := other
	fresh.ID = contract.NewID()
	for _, do := range []view.Action{other, fresh} {
		if acted, err := act(do); !fault.Is(err, fault.NotFound) {
			t.Errorf("said to a run that has ended: %+v, %v", acted, err)
		}
	}
}
