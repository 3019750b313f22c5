package dispatch_test

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
)

// TestAQuestionHidesNothing shows that nothing in a model's question, its choices or its default can turn or hide what
// stands around it where a person reads it.
func TestAQuestionHidesNothing(t *testing.T) {
	h := newHouse(t)
	h.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("q", "ask_user", m{"text": "Type your \u202eyek\u202c\nhere", "choices": []string{"No\u200b", "Yes"}, "default": "\u2066Yes"}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "ok"}))
	}
	run := h.submit("ask")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	got := append([]string{q.Text, q.Default}, q.Choices...)
	if want := []string{"Type your <U+202E>yek<U+202C>\nhere", "<U+2066>Yes", "No<U+200B>", "Yes"}; !slices.Equal(got, want) {
		t.Errorf("it is asked %q", got)
	}
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "Yes"); err != nil {
		t.Fatal(err)
	}
	h.report(run)
}
