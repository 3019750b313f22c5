package run

import (
	"time"

	"choir.dev/choiros/contract"
)

// Approval is an approval that was requested in a run, and its answer.
type Approval struct {
	contract.ApprovalRequested
	Task     string
	Asked    time.Time
	Lost     time.Duration // Lost of the run when it was asked
	Answered bool
	Answer   contract.ApprovalAnswer
	BySystem bool // nobody answered: the system denied it
}

// applyApproval applies the events about approvals. The first answer counts.
func (r *Run) applyApproval(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.ApprovalRequested:
		if r.Approval(p.Approval) == nil {
			r.Approvals = append(r.Approvals, &Approval{ApprovalRequested: *p, Task: e.Task, Asked: e.Time, Lost: r.Lost})
		}
	case *contract.ApprovalAnswered:
		if k := r.Approval(p.Approval); k != nil && !k.Answered {
			k.Answered, k.Answer, k.BySystem = true, p.Answer, e.Kind() == contract.KindSystem
		}
	default:
		return false
	}
	return true
}

// Approval finds an approval by its id, nil when there is none.
func (r *Run) Approval(id string) *Approval {
	for _, k := range r.Approvals {
		if k.Approval == id {
			return k
		}
	}
	return nil
}

// OpenApprovals counts the approvals without an answer.
func (r *Run) OpenApprovals() int {
	n := 0
	for _, k := range r.Approvals {
		if !k.Answered {
			n++
		}
	}
	return n
}

// AskedBy reports whether it was this attempt that asked.
func (k *Approval) AskedBy(task string, attempt int) bool {
	return k.Task == task && k.Attempt == attempt
}

// Meant reports whether a question can be the one that an attempt asks now. What a person is shown of a request names who would
// send it, so nobody else joins it; their denial is heard by all.
func (k *Approval) Meant(task string, attempt int) bool {
	return k.Act.Kind != contract.ApprovalRequest || k.AskedBy(task, attempt) || k.Answer == contract.ApprovalDeny && !k.BySystem
}

// StandsFor reports whether an answer also counts for an attempt that asks now. A person's denial and an approval for the run do;
// an approval for one time counts only for the attempt that asked. What nobody answered may be asked again.
func (k *Approval) StandsFor(task string, attempt int) bool {
	switch k.Answer {
	case contract.ApprovalRun:
		return k.Act.Kind != contract.ApprovalRequest
	case contract.ApprovalOnce:
		return k.AskedBy(task, attempt)
	}
	return !k.BySystem
}
