package dispatch

import (
	"context"
	"encoding/json"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// askOn waits for the answers of questions that an earlier Director had asked when it was interrupted: what the user
// answers is what its call returns, and the model is not asked anew, for it might word its question in another way.
func (a *directorAPI) askOn(ctx context.Context) error {
	for _, c := range a.run.openQuestions() {
		var in director.Ask
		if err := json.Unmarshal(c.Args, &in); err != nil {
			return fault.New("dispatch.askOn", fault.Invalid, "", err)
		}
		in.Call = c.ID
		if _, err := a.ask(ctx, nil, in); err != nil {
			return err
		}
	}
	return nil
}

// openQuestions are the calls, without a return, whose questions are not answered.
func (r *run) openQuestions() (out []contract.ToolCall) {
	open := map[string]bool{}
	r.Story(func(s *story.Run) {
		for _, q := range s.Questions {
			open[q.ID] = !q.Answered
		}
		for _, t := range s.Turns {
			for _, p := range t.Message.Parts {
				if p.Call != nil && t.Returns == nil && open[summary.QuestionID(s, p.Call.ID)] {
					out = append(out, *p.Call)
				}
			}
		}
	})
	return out
}
