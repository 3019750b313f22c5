package summary

import (
	"encoding/json"
	"reflect"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
	story "choir.dev/choiros/internal/run"
)

// ResumableRun is Resumable for the Director. Its tasks have all ended, so the results of a
// delegation are known.
func ResumableRun(s *story.Run) []contract.TurnRecorded {
	return complete(append([]contract.TurnRecorded(nil), s.Turns...), func(call contract.ToolCall) (contract.ToolReturn, bool) {
		if r, ok := returned(s, call); ok {
			return r, true
		}
		return contract.ToolReturn{Content: "Not run: the computer restarted before it.", IsError: true}, false
	})
}

// Resumes reports whether a Director that is ended now and resumed later misses nothing of the calls of its turn: what
// each returned is in the log, or it waits for its user, or for its tasks.
func Resumes(s *story.Run) bool {
	for _, t := range s.Turns {
		for _, p := range t.Message.Parts {
			if p.Call == nil || t.Returns != nil {
				continue
			}
			asked := slices.ContainsFunc(s.Questions, func(q story.Question) bool { return q.ID == QuestionID(s, p.Call.ID) })
			if _, ok := returned(s, *p.Call); !ok && !asked {
				return false
			}
		}
	}
	return true
}

// returned is what a call of the Director returned, or returns now, as far as the log has it.
func returned(s *story.Run, call contract.ToolCall) (contract.ToolReturn, bool) {
	var views []director.TaskView
	for _, t := range s.Tasks {
		if t.Cause == Delegation(s, call.ID) {
			views = append(views, Task(t))
		}
	}
	if len(views) > 0 {
		return contract.ToolReturn{Content: director.DescribeTasks(views)}, true
	}
	for _, q := range s.Questions {
		if q.ID == QuestionID(s, call.ID) && q.Answered {
			return contract.ToolReturn{Content: director.DescribeAnswer(director.Answer{Answer: q.Answer, Default: q.ByDefault})}, true
		}
	}
	for _, f := range s.Noted {
		if f.ID == Noted(s.ID, call.ID) {
			return contract.ToolReturn{Content: DescribeNoted(f.Text)}, true
		}
	}
	if call.Name == director.Plans && planned(s, call) {
		return contract.ToolReturn{Content: director.PlanWritten}, true
	}
	return contract.ToolReturn{}, false
}

// planned reports whether the plan of a run is the one that a call wrote down.
func planned(s *story.Run, call contract.ToolCall) bool {
	var p contract.RunPlanned
	if json.Unmarshal(call.Args, &p) != nil {
		return false
	}
	return p.Objective == s.Objective && reflect.DeepEqual(director.WithStatus(p.Plan), s.Plan)
}
