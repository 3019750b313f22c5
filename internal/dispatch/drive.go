package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/associate/verify"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/supervise"
)

// interrupted is why an attempt that can't be resumed ends.
const interrupted = "the computer restarted while this attempt was under way"

// maxRepeats bounds how often an attempt makes the same step in a row.
const maxRepeats = 10

// drive takes an attempt from wherever it stands to its end: it does what the
// machine says is next, which appends the next transition, until nothing is
// left. An error means that it is left as it stands, for the next start.
func (a *attempt) drive(ctx context.Context) error {
	var last machine.Step
	for times := 0; ; {
		a.now = a.run.standing(a.ref)
		step := a.now.Next(a.task.Kind)
		if times++; step != last {
			last, times = step, 1
		}
		if times > maxRepeats {
			// What it stored did not take it anywhere: it can't be read back.
			return fault.New("dispatch.drive", fault.Internal, "", fmt.Errorf("attempt %d of a task is to %s for the %dth time", a.ref.Attempt, step, times))
		}
		if step == machine.NothingTo {
			crash.At("dispatch.task.finished")
			// Its result is known: nobody waits for what it leaves to be gone but
			// who lets the run go.
			a.run.drops.Go(func() {
				if err := supervise.Safely(func() error { a.discard(); return nil }); err != nil {
					a.run.dispatcher.log.Error("what an ended task left could not be removed", "task", a.ref.Task, "attempt", a.ref.Attempt, "error", err, "stack", supervise.Stack(err))
				}
			})
			return nil
		}
		if a.run.closing() {
			return errClosing
		}
		err := a.do(ctx, step)
		if err == nil {
			continue
		}
		if a.run.closing() {
			return errClosing
		}
		if now := a.run.standing(a.ref); now.State != a.now.State && now.State != contract.AttemptWorking {
			continue // it moved on all the same: its answer was lost
		}
		switch a.now.State {
		case contract.AttemptTakingBack, contract.AttemptLeft, contract.AttemptEnded:
			return err // the result is decided, and can't be recorded now
		}
		if err := a.fail(err); err != nil {
			return err
		}
	}
}

// do does one step.
func (a *attempt) do(ctx context.Context, step machine.Step) error {
	switch step {
	case machine.Begin:
		return a.begin(ctx)
	case machine.Work:
		return a.workOn(ctx)
	case machine.Merge:
		return a.mergeNow(ctx)
	case machine.Check:
		return a.move(&contract.AttemptMoved{State: contract.AttemptVerifying})
	case machine.Verify:
		return a.verifyNow(ctx)
	case machine.Decide:
		return a.decide()
	case machine.Publish:
		return a.publishNow(ctx)
	case machine.GiveUp:
		return a.giveUp(*a.now.Result, false)
	case machine.TakeBack:
		return a.takeBack()
	case machine.Conclude:
		return a.finished(*a.now.Result)
	}
	return fault.New("dispatch.drive", fault.Internal, "", fmt.Errorf("nobody does %q", step))
}

// standing is where an attempt stands in the story.
func (r *run) standing(ref ports.TaskRef) machine.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.story.Task(ref.Task); t.Now.Number == ref.Attempt {
		return t.Now
	}
	return machine.Attempt{Number: ref.Attempt}
}

// closing says that the computer goes to sleep: what is under way stays as it is.
func (r *run) closing() bool { return r.dispatcher.ctx.Err() != nil }

// transition is the event of one, which is stored only right behind the
// attempt's newest one.
func (a *attempt) transition(eventType string, by contract.Actor, p contract.Payload) (contract.Draft, error) {
	if _, err := a.now.Apply(a.now.Last, p); err != nil {
		return contract.Draft{}, fault.New("dispatch", fault.Internal, "", err)
	}
	return contract.Draft{ID: contract.DeriveID(a.ref.Task, fmt.Sprintf("attempt:%d:%d", a.ref.Attempt, a.now.Moves)), Actor: by, Type: eventType,
		Subject: machine.Subject(a.ref.Task, a.ref.Attempt), Task: a.ref.Task, Data: p, Expect: &contract.Expect{Last: a.now.Last}}, nil
}

// record appends a draft although the run was cancelled, trying again while it
// is not known whether it is stored.
func (a *attempt) record(draft contract.Draft) error {
	ctx, cancel := a.cleanUp()
	defer cancel()
	for try := 1; ; try++ {
		_, err := a.run.append(ctx, draft)
		if !fault.Is(err, fault.Unavailable) || try == maxAttempts || a.run.closing() {
			return fault.Wrap("dispatch.record", err)
		}
	}
}

// move appends a transition.
func (a *attempt) move(p *contract.AttemptMoved) error {
	p.Attempt = a.ref.Attempt
	d, err := a.transition("attempt.moved", contract.System(), p)
	if err != nil {
		return err
	}
	return a.record(d)
}

// finished appends the attempt's one result.
func (a *attempt) finished(res contract.AssociateResult) error {
	d, err := a.transition("task.finished", contract.AssociateOf(a.ref.Task), &contract.TaskFinished{Result: res})
	if err != nil {
		return err
	}
	return a.record(d)
}

// begin takes the base that the attempt's tree is made from.
func (a *attempt) begin(ctx context.Context) error {
	base := a.task.Base
	if a.task.Kind != contract.KindGit {
		for try := 1; ; try++ {
			commit, err := a.run.dispatcher.options.Workspace.Checkpoint(ctx, a.ref, summary.BeforeTask(a.task))
			if err == nil {
				base = firstText(a.task.Base, commit)
				break
			}
			if try == maxAttempts || !lost(err) || ctx.Err() != nil {
				return err
			}
		}
	}
	return a.move(&contract.AttemptMoved{State: contract.AttemptBegun, Base: base})
}

// workOn lets the attempt's loop work until it has said its last word.
func (a *attempt) workOn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	resume := a.now.State == contract.AttemptWorking
	if resume && (a.task.Kind != contract.KindAgent || a.now.Starts >= maxStarts) {
		return fault.New("", fault.Unavailable, "", firstError(a.lost, errors.New(interrupted)))
	}
	loop := a.openLoop(ctx)
	if err := a.open(ctx, resume); err != nil {
		loop.close()
		if fault.Is(err, fault.NotFound) {
			return fault.New("", fault.Unavailable, "", err) // another attempt has a tree of its own
		}
		return err
	}
	draft, err := a.converse(ctx, resume, loop)
	a.stop(nil)
	switch {
	case err == nil:
	case fault.Is(err, fault.Exhausted):
		draft = associate.Draft{Status: contract.ResultFailed, Summary: "The task was stopped: " + err.Error() + "."}
	case lost(err) && ctx.Err() == nil && a.early+1 < maxStarts:
		// It goes on in other boxes, as far as its state lets it.
		a.lost = err
		if a.run.standing(a.ref).Starts == a.now.Starts {
			a.early++ // they were lost before task.started
		}
		a.run.dispatcher.log.Warn("an attempt lost its box", "task", a.ref.Task, "attempt", a.ref.Attempt, "starts", a.now.Starts, "error", err)
		a.begun()
		return nil
	default:
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	res := a.draft(draft)
	a.now = a.run.standing(a.ref)
	return a.move(&contract.AttemptMoved{State: contract.AttemptFinished, Result: &res})
}

// open makes the attempt's overlay, or takes up the one that is there.
func (a *attempt) open(ctx context.Context, made bool) error {
	if a.overlay != nil || a.task.Kind == contract.KindGit {
		return nil
	}
	var err error
	if made {
		if a.overlay, err = a.run.dispatcher.options.Workspace.Reopen(ctx, a.ref, a.now.Base); err != nil {
			a.overlay = nil
			return fmt.Errorf("the interrupted attempt's tree: %w", err)
		}
		return nil
	}
	if a.overlay, err = a.run.dispatcher.options.Workspace.Begin(ctx, a.ref, a.now.Base); err != nil {
		a.overlay = nil
		return err
	}
	crash.At("dispatch.task.prepared")
	return nil
}

// mergeNow merges what the loop left with the live tree as it is.
func (a *attempt) mergeNow(ctx context.Context) error {
	if err := a.open(ctx, true); err != nil {
		return err
	}
	m, err := a.merge(ctx)
	if err != nil {
		return err
	}
	a.merged = &m
	res := *a.now.Result
	p := &contract.AttemptMoved{State: contract.AttemptMerged, Result: &res, Try: a.now.Try + 1}
	if len(m.Changes) == 0 {
		// What no tree can hold is said all the same: it is nowhere else.
		res.Verification.Reason, res.Verification.Said = "nothing was changed", verify.SaidOf(summary.LeftBehind(m.Left))
		if len(res.Verification.Said) > 0 {
			res.Summary = harness.Clip(res.Summary+summary.Checked(res.Verification), 30<<10)
		}
		return a.move(p)
	}
	if err := a.describe(ctx, &res, m); err != nil {
		return err
	}
	p.Merge = &contract.AttemptMerge{Commit: m.Commit, Tree: m.Tree}
	if err := a.move(p); err != nil {
		return err
	}
	crash.At("dispatch.task.merged")
	return nil
}

// theMerge is the merge that the state names, with what the task changed. After
// a crash that is read again: it does not depend on the live tree.
func (a *attempt) theMerge(ctx context.Context) (ports.Merged, error) {
	if err := a.open(ctx, true); err != nil {
		return ports.Merged{}, err
	}
	if a.merged == nil {
		m, err := a.merge(ctx)
		if err != nil {
			return ports.Merged{}, err
		}
		a.merged = &m
	}
	m := *a.merged
	m.Commit, m.Tree, m.Scope = a.now.Merge.Commit, a.now.Merge.Tree, a.now.Scope
	return m, nil
}

// scope is what a verification depends on, as far as an event holds it. Without
// one all of the live tree counts.
func scope(m ports.Merged) []string {
	if len(m.Scope) > contract.MaxScope || slices.ContainsFunc(m.Scope, func(p string) bool { return len(p) > 4096 }) {
		return nil
	}
	return m.Scope
}

// verifyNow checks the merge. The transition holds what the checks found.
func (a *attempt) verifyNow(ctx context.Context) error {
	m, err := a.theMerge(ctx)
	if err != nil {
		return err
	}
	var v contract.Verification
	if a.now.Try <= verifyTries {
		v = a.verify(ctx, &m)
	} else {
		v = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Tree: m.Tree,
			Reason: fmt.Sprintf("files that it depends on were changed by others during each of %d verifications, so what was published is not what was verified", verifyTries)}
		if a.now.Verification != nil {
			v.Checks, v.Said = a.now.Verification.Checks, a.now.Verification.Said
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := a.move(&contract.AttemptMoved{State: contract.AttemptVerified, Verification: &v, Scope: scope(m)}); err != nil {
		return err
	}
	crash.At("dispatch.task.verified")
	return nil
}

// decide says what the checks found and goes on by it: what failed is never
// published. What it says is the transition's own, under an id of its own, so that
// a repeat after a crash says the same and the two need no batch.
func (a *attempt) decide() error {
	if err := a.record(contract.Draft{Actor: contract.System(),
		ID:   contract.DeriveID(a.ref.Task, fmt.Sprintf("verified:%d:%d", a.ref.Attempt, a.now.Moves-1)),
		Type: "verification.finished", Subject: a.ref.Task, Task: a.ref.Task,
		Data: &contract.VerificationFinished{Attempt: a.ref.Attempt, Verification: *a.now.Verification}}); err != nil {
		return err
	}
	res := *a.now.Result
	res.Verification = *a.now.Verification
	if res.Verification.Status == contract.VerificationFail {
		res.Status = contract.ResultFailed
		res.Summary = harness.Clip("Verification failed, so nothing was published. "+res.Summary+summary.Checked(res.Verification), 30<<10)
		return a.giveUp(res, false)
	}
	return a.move(&contract.AttemptMoved{State: contract.AttemptPublishing})
}

// publishNow applies the merge, if the live tree has not moved since, and ends
// the attempt. Repeated after a crash, it finds that it was applied.
func (a *attempt) publishNow(ctx context.Context) error {
	if a.now.Decided {
		ctx = context.WithoutCancel(ctx)
	}
	m, err := a.theMerge(ctx)
	if err != nil {
		return a.undecided(ctx, err)
	}
	force := a.now.Try > verifyTries
	p, err := a.publish(ctx, m, a.now.Verification.Status, force)
	if fault.Is(err, fault.Conflict) && !force {
		a.overcome()
		return a.mergeNow(ctx)
	}
	if err != nil {
		return a.undecided(ctx, err)
	}
	a.overcome()
	crash.At("dispatch.task.published")
	res := *a.now.Result
	res.Verification, res.Head = *a.now.Verification, p.Checkpoint
	res.Summary = harness.Clip(res.Summary+summary.Checked(res.Verification)+summary.Kept(p), 30<<10)
	a.artifacts(context.WithoutCancel(ctx), &res)
	return a.finished(res)
}

// undecided is what becomes of a publish that gave no answer: as long as it was
// not begun it is given up after some tries; once it was, it will be applied, now
// or by the next start, so it is asked for for a while, which the user is told of.
// Then it is left as it is.
func (a *attempt) undecided(ctx context.Context, err error) error {
	a.tries++
	begun := a.run.standing(a.ref).Decided
	if !begun && (ctx.Err() != nil || a.tries == maxAttempts) {
		return err
	}
	if a.until == 0 {
		a.until = awake.Now() + a.run.dispatcher.options.Times.TakeBack
	}
	left := a.until - awake.Now()
	if begun && left <= 0 {
		return a.leavePublish(err)
	}
	cancelled, waitErr := a.again(trouble{what: fmt.Sprintf("Whether the work of “%s” was published is not known", summary.Title(a.task.Goal)), how: a.untilThen(left)}, err)
	switch {
	case waitErr != nil:
		return waitErr
	case cancelled && begun:
		return a.leavePublish(err)
	}
	return nil
}

// leavePublish ends a publish that was begun and of which nobody says whether it
// was applied: nobody else is kept from working by it any more, and the result
// says how to go back. The next start finds out by itself.
func (a *attempt) leavePublish(why error) error {
	res := *a.now.Result
	res.Status = contract.ResultFailed
	res.Verification = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Reason: "whether it was published is not known"}
	res.Summary = harness.Clip(fmt.Sprintf("%s\n\nWhether this was published is not known: %s. It may be live, whole, or become so when the computer wakes the next time. To go back, restore the checkpoint “%s” in Time Travel.%s",
		res.Summary, summary.OneLine(fault.Text(why), 2000), summary.BeforeTask(a.task), hint(why)), 30<<10)

	if err := a.move(&contract.AttemptMoved{State: contract.AttemptLeft, Result: &res, Reason: summary.OneLine(fault.Text(why), 4000)}); err != nil {
		return err
	}
	a.overcome()
	return nil
}

// giveUp decides that nothing of the attempt is kept, and with which result it
// ends once that is so.
func (a *attempt) giveUp(res contract.AssociateResult, again bool) error {
	keep := res.Status != contract.ResultOK && a.task.OnFailure == contract.Keep
	return a.move(&contract.AttemptMoved{State: contract.AttemptTakingBack, Result: &res, Again: again, Keep: keep})
}

// fail gives the attempt up for a reason of the machinery.
func (a *attempt) fail(err error) error {
	a.stop(nil)
	cancelled := errors.Is(err, errCancelled) || a.run.ctx.Err() != nil
	if cancelled && a.run.ctx.Err() != nil {
		err = context.Cause(a.run.ctx) // what broke because of it says less
	}
	res := a.broken(err, cancelled)
	a.now = a.run.standing(a.ref)
	if a.now.State == "" {
		return a.finished(res)
	}
	return a.giveUp(res, !cancelled && lost(err) && a.ref.Attempt < maxAttempts)
}

// broken is the result of an attempt that ended for a reason of the machinery,
// with what is known of it.
func (a *attempt) broken(err error, cancelled bool) contract.AssociateResult {
	res := contract.AssociateResult{Version: contract.Version, Task: a.ref.Task, Attempt: a.ref.Attempt, Base: a.now.Base, Commands: a.ran()}
	a.mu.Lock()
	res.Egress = contract.EgressReport{Allowed: slices.Clone(a.allowed), Denied: slices.Clone(a.denied)}
	a.mu.Unlock()
	if a.now.Result != nil {
		res.Egress, res.Usage = a.now.Result.Egress, a.now.Result.Usage
	}
	res.Status, res.Summary = contract.ResultFailed, firstText(summary.OneLine(fault.Text(err), 4000), "failed")
	if cancelled {
		res.Status, res.Summary = contract.ResultCancelled, "The task was cancelled: "+summary.OneLine(fault.Text(err), 4000)+"."
		if errors.Is(err, errCancelled) {
			res.Summary = "The task was " + errCancelled.Error() + "."
		}
		if gone := a.run.gone(); gone != nil {
			res.Status, res.Summary = contract.ResultFailed, harness.Clip("The task was ended: "+gone.Error()+".", 4000)
		}
	}
	res.Verification = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Reason: "the task did not end by itself"}
	return res
}

// discard drops the overlay of an attempt that has its result. The result is in
// the log before the tree it came from is gone: a death in between leaves an
// overlay behind, not a task whose work nobody can account for. The next start sweeps
// it, so a tree that is to stay was kept before (keepTree).
func (a *attempt) discard() {
	if a.task.Kind == contract.KindGit {
		return
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	err := a.open(ctx, true)
	if err == nil {
		err = a.run.dispatcher.options.Workspace.Drop(ctx, a.overlay)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		a.run.dispatcher.log.Warn("a task's overlay could not be removed; it takes up space", "task", a.ref.Task, "attempt", a.ref.Attempt, "error", err)
	}
}

// cleanUp is the context for what must happen though a run was cancelled.
func (a *attempt) cleanUp() (context.Context, context.CancelFunc) {
	return awake.WithTimeout(context.WithoutCancel(a.run.ctx), a.run.dispatcher.options.Times.CleanUp)
}
