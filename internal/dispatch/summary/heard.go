package summary

import (
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// heard reports whether a loop with these turns was told something, also by what stands in the place of earlier turns.
func heard(turns []contract.TurnRecorded, said string) bool {
	return slices.ContainsFunc(turns, func(t contract.TurnRecorded) bool {
		return strings.Contains(t.Told, said) || t.Compacted != nil && strings.Contains(t.Compacted.Text, said)
	})
}

// Unheard counts the user's words that a loop with these turns was not told.
func Unheard(turns []contract.TurnRecorded, s *story.Run) (n int) {
	for _, said := range Words(s) {
		if !heard(turns, said) {
			n++
		}
	}
	return n
}

// NotOver is what a Director's report returns while the user has said something that it was not told. The words stand
// behind it, as all that the user says does.
const NotOver = "Not over: the user has said something since you were asked. You are told it now. Go on with it, and then report."

// unheard says in a report which of the user's words no loop of the run was told.
func unheard(s *story.Run) (out []string) {
	for i, said := range Words(s) {
		told := heard(s.Turns, said)
		for _, t := range s.Tasks {
			told = told || heard(t.Turns, said)
		}
		switch {
		case told:
		case len(out) == maxUnheard:
			return append(out, "More of what you said came too late to be told to anybody.")
		default:
			out = append(out, "This came too late to be told to anybody: “"+OneLine(s.Steering[i], 500)+"”. Say it in a prompt that continues this run.")
		}
	}
	return out
}

// maxUnheard is how many words that nobody was told are in a report.
const maxUnheard = 5

// reporting returns the index of the call of a turn with which a Director has reported, among its parts; -1 if there
// is none.
func reporting(t contract.TurnRecorded) int {
	return slices.IndexFunc(t.Message.Parts, func(p contract.Part) bool {
		return p.Call != nil && directorEnds(p.Call.Name) && slices.ContainsFunc(t.Returns, func(m contract.Message) bool {
			return slices.ContainsFunc(m.Parts, func(o contract.Part) bool { return o.Return != nil && o.Return.ID == p.Call.ID && !o.Return.IsError })
		})
	})
}

func directorEnds(name string) bool {
	return slices.ContainsFunc(director.Declared(nil, nil), func(t tool.Tool) bool { return t.Ends && t.Name == name })
}

// HasReported reports whether a Director with these turns has ended its work.
func HasReported(turns []contract.TurnRecorded) bool {
	return len(turns) > 0 && reporting(turns[len(turns)-1]) >= 0
}

// NotTaken is the last of a Director's turns, whose report is not taken: that is what its call returned.
func NotTaken(last contract.TurnRecorded) contract.TurnRecorded {
	call := last.Message.Parts[reporting(last)].Call.ID
	msg := contract.Message{Role: contract.MessageUser}
	for _, m := range last.Returns {
		for _, p := range m.Parts {
			if p.Return != nil && p.Return.ID == call {
				p.Return = &contract.ToolReturn{ID: call, Content: NotOver, IsError: true}
			}
			msg.Parts = append(msg.Parts, p)
		}
	}
	last.Returns = []contract.Message{msg}
	return last
}
