package run

import "choir.dev/choiros/contract"

// Approval is an approval that was requested in a run, and its answer.
type Approval struct {
	contract.ApprovalRequested
	Task     string
	Answered bool
	Answer   contract.ApprovalAnswer
	BySystem bool // nobody answered: the system denied it
}

// applyApproval applies the events about approvals. The first answer counts.
func (r *Run) applyApproval(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.ApprovalRequested:
		if r.Approval(p.Approval) == nil {
			r.Approvals = append(r.Approvals, &Approval{ApprovalRequested: *p, Task: e.Task})
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
