package task

import (
	"context"
	"fmt"

	"choir.dev/choiros/contract"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// reviewed reports whether a person looks at the run's work before it is published.
func (a *attempt) reviewed() (yes bool) {
	a.run.Story(func(s *story.Run) { yes = s.Looked })
	return yes
}

// reviewOf asks a person to look at the work that was merged. What they chose of it before failed its
// checks, if they did.
func (a *attempt) reviewOf(now machine.Attempt, m ports.Merged) *contract.ReviewRequested {
	p := &contract.ReviewRequested{Attempt: a.ref.Attempt, Review: now.Review + 1, Base: now.Base, Work: m.Work, Paths: len(m.Changes)}
	if now.Answer != nil {
		p.Work, p.Reason = now.Work, summary.Failing(*now.Verification)
	}
	return p
}

// awaitReview waits until a person has decided about the work. Nobody decides for them: however long it
// takes, nothing is published meanwhile, and the task keeps no place from others.
func (a *attempt) awaitReview(ctx context.Context) error {
	r := a.run
	over := r.Waits(fmt.Sprintf("what “%s” made waits until you have looked at it", summary.Title(a.task.Goal)))
	if err := r.Settle(ctx); err != nil && ctx.Err() == nil { // what waits is in the log, whatever is said of the run
		a.host.Logger.Warn("that a run waits to be looked at could not be recorded", "task", a.ref.Task, "error", err)
	}
	err := r.Rest(a.ref.Task, func() error {
		return r.Until(ctx, func(s *story.Run) bool { return s.Task(a.ref.Task).Now.State != contract.AttemptReviewing })
	})
	over()
	if err != nil {
		return err
	}
	return r.Settle(ctx)
}

// afterReview does what the person decided.
func (a *attempt) afterReview(ctx context.Context) error {
	crash.At("dispatch.review.answered")
	switch answer := a.now.Answer; answer.Decision {
	case contract.ReviewPublish:
		if len(answer.Only) == 0 && a.now.Merge != nil { // it was merged and checked as it was shown
			return a.move(&contract.AttemptMoved{State: contract.AttemptPublishing})
		}
		a.merged = nil
		err := a.mergeNow(ctx)
		if !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Invalid) {
			return err
		}
		// It could be chosen when the person did; so they are told, and look again.
		return a.askAgain(&contract.ReviewRequested{Attempt: a.ref.Attempt, Review: a.now.Review + 1, Base: a.now.Base, Work: a.now.Work, Paths: len(a.now.Result.Changes),
			Reason: "What was chosen of it can't be taken: " + summary.OneLine(fault.Text(err), 2000) + "."})
	case contract.ReviewRevise:
		if b := a.task.Budget; a.timeUsedUp() || b.ToolCalls > 0 && a.calls >= b.ToolCalls {
			return a.askAgain(&contract.ReviewRequested{Attempt: a.ref.Attempt, Review: a.now.Review + 1, Base: a.now.Base, Work: a.now.Work, Paths: len(a.now.Result.Changes),
				Reason: "It can't be sent back, for its budget is used up. Take it, or a part of it, or discard it: what it wrote is kept, and another prompt can go on from it."})
		}
		d, err := a.transition("repair.requested", contract.System(), &contract.RepairRequested{Attempt: a.ref.Attempt, Repair: a.now.Repairs, Failed: summary.Comments(*answer), Review: a.now.Review})
		if err != nil {
			return err
		}
		if err := a.record(d); err != nil {
			return err
		}
		crash.At("dispatch.task.repairing")
		a.workAgain()
		return nil
	case contract.ReviewDiscard:
		res := *a.now.Result
		res.Status, res.Verification = contract.ResultCancelled, *a.now.Verification
		a.tellReview(&res)
		return a.giveUp(res, false)
	default:
		return fault.New("dispatch.review", fault.Internal, "", fmt.Errorf("nobody does %q", answer.Decision))
	}
}

func (a *attempt) askAgain(p *contract.ReviewRequested) error {
	d, err := a.transition("review.requested", contract.System(), p)
	if err != nil {
		return err
	}
	return a.record(d)
}

// tellReview says in the result what a person decided about it last, if they were asked.
func (a *attempt) tellReview(res *contract.AssociateResult) {
	a.run.Story(func(s *story.Run) {
		if t := s.Task(a.ref.Task); t.Now.Number == a.ref.Attempt {
			summary.TellReview(res, t.Reviews)
		}
	})
}
