package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// TestAQuestionOutlivesARestart: a question that waits when the process dies goes on waiting. Its answer is what the
// call returned that had asked it, and a model that would now ask in other words is not asked meanwhile.
func TestAQuestionOutlivesARestart(t *testing.T) {
	for name, deaths := range map[string]int{"one death": 1, "two deaths": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			asked := 0
			var returned string
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				if n == 0 {
					asked++
					return parts(use("q", "ask_user", m{"text": []string{"Which one?", "Which of the two?", "Which?"}[asked-1], "choices": []string{"a", "b"}, "default": "a", "deadline_s": 600}))
				}
				for _, p := range req.Messages[len(req.Messages)-1].Parts {
					if p.Return != nil && p.Return.ID == "q" {
						returned = p.Return.Content
					}
				}
				return parts(use("r", "report", m{"status": "done", "summary": "Asked."}))
			}
			run := h.submit("ask me")
			h.told(run, "question.asked", nil)
			for range deaths {
				h.restart()
				choirtest.Eventually(t, time.Minute, "it waits for its user", func() bool { return h.d.Asking(run) == 1 })
			}
			q := h.events("question.asked")[0].(*contract.QuestionAsked).Question
			if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "b"); err != nil {
				t.Fatal(err)
			}
			h.report(run)
			h.quiet()
			if n := len(h.events("question.asked")); n != 1 || asked != 1 {
				t.Errorf("the user was asked %d times, the model %d times", n, asked)
			}
			if !strings.Contains(returned, "The user answers: b") {
				t.Errorf("the call returned %q", returned)
			}
		})
	}
}
