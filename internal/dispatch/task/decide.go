package task

import (
	"fmt"

	"choir.dev/choiros/contract"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/harness"
)

// decide appends what the checks found, unless that is stored already, with the verdict and what follows
// from it: a tree that failed is never published, and where a person looks first, none that they have not
// taken. The verdict has an id that is derived from what was found, and both are stored together.
func (a *attempt) decide(m ports.Merged, found ...*contract.AttemptMoved) error {
	drafts, now, err := a.moving(found...)
	if err != nil {
		return err
	}
	drafts = append(drafts, contract.Draft{Actor: contract.System(),
		ID:   contract.DeriveID(a.ref.Task, fmt.Sprintf("verified:%d:%d", a.ref.Attempt, now.Moves-1)),
		Type: "verification.finished", Subject: a.ref.Task, Task: a.ref.Task,
		Data: &contract.VerificationFinished{Attempt: a.ref.Attempt, Verification: *now.Verification}})
	res := *now.Result
	res.Verification = *now.Verification
	follows, eventType := contract.Payload(&contract.AttemptMoved{Attempt: a.ref.Attempt, State: contract.AttemptPublishing}), "attempt.moved"
	repair := false
	switch fails := res.Verification.Status == contract.VerificationFail; {
	case fails && now.Chosen(), !fails && a.reviewed() && !now.Taken():
		follows, eventType = a.reviewOf(now, m), "review.requested"
	case fails:
		if repair = a.mayRepair(now); repair {
			follows, eventType = &contract.RepairRequested{Attempt: a.ref.Attempt, Repair: now.Repairs + 1,
				Failed: summary.Repair(res.Verification, now.Repairs+1, a.host.Repairs)}, "repair.requested"
		} else {
			res.Status = contract.ResultFailed
			res.Summary = harness.Clip("Verification failed, so nothing was published. "+res.Summary+summary.Checked(res.Verification), 30<<10)
			follows = a.givenUp(res, false)
		}
	}
	d, _, err := a.transitionFrom(now, eventType, contract.System(), follows)
	if err != nil {
		return err
	}
	if err := a.record(append(drafts, d)...); err != nil || !repair {
		return err
	}
	crash.At("dispatch.task.repairing")
	a.workAgain()
	return nil
}

// workAgain prepares an attempt that is sent back for new boxes.
func (a *attempt) workAgain() {
	a.merged, a.lost, a.early = nil, nil, 0
	a.begun()
}

// mayRepair decides whether an attempt whose checks failed is sent back to its loop: if it has one, which
// has changed something since it was last sent back, and repairs, time and calls left.
func (a *attempt) mayRepair(now machine.Attempt) bool {
	switch b := a.task.Budget; {
	case !a.task.Kind.Resumes(), now.Repairs >= a.host.Repairs, a.run.Context().Err() != nil:
		return false
	case now.Repairs > 0 && now.Verification.Tree == now.Failed:
		return false
	case a.timeUsedUp(), b.ToolCalls > 0 && a.calls >= b.ToolCalls:
		return false
	}
	return true
}
