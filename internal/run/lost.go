package run

import (
	"strconv"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
)

// Lose applies, at its place in the log's order, an event of the run whose data are lost:
// only its envelope counts. An attempt that made a transition that can't be known any more
// stays in its last known state, so that giving it up is the next transition.
func (r *Run) Lose(e contract.Event) {
	if e.Sequence <= r.Last {
		return
	}
	r.Last = e.Sequence
	if e.Type == "prompt.submitted" {
		r.User, r.Cause, r.Correlation, r.Sequence, r.Began = e.User, e.ID, e.ID, e.Sequence, e.Time
		return
	}
	t := r.Task(e.Task)
	number := 0
	if t != nil {
		if rest, ok := strings.CutPrefix(e.Subject, strings.TrimSuffix(attempt.Subject(e.Task, 0), "0")); ok {
			number, _ = strconv.Atoi(rest) // any other subject is not an attempt's
		}
	}
	if number < 1 || number < t.Now.Number {
		return
	}
	r.clock(t, func() { t.lose(e, number) })
}

// lose applies a transition of an attempt whose data are lost.
func (t *Task) lose(e contract.Event, number int) {
	if number > t.Now.Number {
		t.next(attempt.Attempt{Number: number, State: contract.AttemptBegun})
	}
	t.Now.Last = e.Sequence
	t.Now.Moves++
	switch e.Type {
	case "task.started":
		t.Now.State = contract.AttemptWorking
		t.Now.Starts++
	case "task.finished":
		lost := contract.AssociateResult{Version: contract.Version, Task: e.Task, Attempt: number, Base: t.Now.Base,
			Status: contract.ResultFailed, Summary: "Its result can't be read any more.",
			Verification: contract.Verification{Profile: t.Request.Verify.Profile, Status: contract.VerificationUnknown, Reason: "the result can't be read any more"}}
		t.Now.State, t.Now.Result = contract.AttemptEnded, &lost
		t.Results[number], t.Newest = lost, &lost
	}
}

// Matters says whether the further course of a run depends on a lost event. It does not
// when runs ignore the event, or when the event says how a task worked that has its result
// since.
func (r *Run) Matters(e contract.Event) bool {
	kind, _, _ := strings.Cut(e.Type, ".")
	switch kind {
	case "document", "checkpoint":
		return false
	case "turn", "tool", "egress", "publish", "usage":
		t := r.Task(e.Task)
		return t == nil || !t.Ended()
	}
	return true
}
