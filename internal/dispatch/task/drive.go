package task

import (
	"cmp"
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
	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/supervise"
)

// interrupted is the reason why an attempt that can't be resumed after a restart ends.
const interrupted = "the computer restarted while this attempt was under way"

// maxRepeats bounds how often an attempt may repeat the same step in a row. Starts of its loop have a bound of their own.
const maxRepeats = 10

// drive takes an attempt from where it stands to its end. It does the step that the state machine names
// next, which appends the next transition, until there is none. An error means that the attempt is left
// as it stands, for the next start.
func (a *attempt) drive(ctx context.Context) error {
	var last machine.Step
	for times, starts := 0, 0; ; {
		a.now = a.standing()
		step := a.now.Next(a.task.Kind)
		if times++; step != last || a.now.Starts != starts {
			last, times, starts = step, 1, a.now.Starts
		}
		if times > maxRepeats {
			// The events that the step appends do not change the attempt's state, so they can't be read
			// back as they were meant.
			return fault.New("dispatch.drive", fault.Internal, "", fmt.Errorf("attempt %d of a task is to %s for the %dth time", a.ref.Attempt, step, times))
		}
		if step == machine.NothingTo {
			crash.At("dispatch.task.finished")
			// Its result is in the log, so only the end of the run waits for the removal of its overlay.
			// While that of as many as may be at work is slow, the task keeps its slot, so that those that
			// follow make no further overlays.
			place := &slots.Slot{Slots: a.host.removals}
			if !place.Take(a.run.Awake()) {
				return nil // the next start removes it
			}
			a.run.Go(func() {
				defer place.Give()
				if err := supervise.Safely(func() error { a.discard(); return nil }); err != nil {
					a.host.Logger.Error("what an ended task left could not be removed", "task", a.ref.Task, "attempt", a.ref.Attempt, "error", err, "stack", supervise.Stack(err))
				}
			})
			return nil
		}
		if closing(a.run) {
			return ErrClosing
		}
		err := a.persist(ctx, step, a.do(ctx, step))
		if err == nil {
			continue
		}
		if closing(a.run) {
			return ErrClosing
		}
		if now := a.standing(); now.State != a.now.State && now.State != contract.AttemptWorking {
			continue // the transition was stored although its answer was lost
		}
		if a.settled(err) {
			return err // it can't be recorded now
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
		m, err := a.theMerge(ctx)
		if err != nil {
			return err
		}
		return a.decide(m)
	case machine.Review:
		return a.awaitReview(ctx)
	case machine.Follow:
		return a.afterReview(ctx)
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

// standing returns the attempt's state according to the story.
func (a *attempt) standing() machine.Attempt {
	now := machine.Attempt{Number: a.ref.Attempt}
	a.run.Story(func(s *story.Run) {
		if t := s.Task(a.ref.Task); t.Now.Number == a.ref.Attempt {
			now = t.Now
		}
	})
	return now
}

// transition makes the event of a transition, which is stored only if no other transition of the attempt
// has been stored since the newest known one.
func (a *attempt) transition(eventType string, by contract.Actor, p contract.Payload) (contract.Draft, error) {
	d, _, err := a.transitionFrom(a.now, eventType, by, p)
	return d, err
}

// transitionFrom is transition for an attempt whose state is now, and returns the state after it. Where
// that is not a.now, the transition has to be stored in one call behind the one that leads there, and
// then it is that one's condition which holds for both.
func (a *attempt) transitionFrom(now machine.Attempt, eventType string, by contract.Actor, p contract.Payload) (contract.Draft, machine.Attempt, error) {
	next, err := now.Apply(now.Last, p)
	if err != nil {
		return contract.Draft{}, now, fault.New("dispatch", fault.Internal, "", err)
	}
	d := contract.Draft{ID: contract.DeriveID(a.ref.Task, fmt.Sprintf("attempt:%d:%d", a.ref.Attempt, now.Moves)), Actor: by, Type: eventType,
		Subject: machine.Subject(a.ref.Task, a.ref.Attempt), Task: a.ref.Task, Data: p}
	if now.Moves == a.now.Moves {
		d.Expect = &contract.Expect{Last: now.Last}
	}
	return d, next, nil
}

// record appends drafts even if the run was cancelled: all of them or none. It tries again while it is not
// known whether they are stored.
func (a *attempt) record(drafts ...contract.Draft) error {
	ctx, cancel := a.cleanUp()
	defer cancel()
	for try := 1; ; try++ {
		_, err := a.run.Append(ctx, drafts...)
		if !fault.Is(err, fault.Unavailable) || try == MaxAttempts || closing(a.run) {
			return fault.Wrap("dispatch.record", err)
		}
	}
}

// move appends transitions that follow each other without anything being done in between. They share one
// sync of the log.
func (a *attempt) move(transitions ...*contract.AttemptMoved) error {
	drafts, _, err := a.moving(transitions...)
	if err != nil {
		return err
	}
	return a.record(drafts...)
}

// moving makes the events of such transitions, and returns the attempt's state after them.
func (a *attempt) moving(transitions ...*contract.AttemptMoved) (drafts []contract.Draft, now machine.Attempt, err error) {
	now = a.now
	for _, p := range transitions {
		var d contract.Draft
		p.Attempt = a.ref.Attempt
		if d, now, err = a.transitionFrom(now, "attempt.moved", contract.System(), p); err != nil {
			return nil, now, err
		}
		drafts = append(drafts, d)
	}
	return drafts, now, nil
}

// finished appends the attempt's only result.
func (a *attempt) finished(res contract.AssociateResult) error {
	d, err := a.transition("task.finished", contract.AssociateOf(a.ref.Task), &contract.TaskFinished{Result: res})
	if err != nil {
		return err
	}
	return a.record(d)
}

// begin makes the checkpoint that the attempt's tree starts from.
func (a *attempt) begin(ctx context.Context) error {
	from := ports.Start{Base: a.task.Base}
	if a.task.Base != "" {
		var err error
		if from, err = a.host.Workspace.Start(ctx, a.task.Base); err != nil {
			return fmt.Errorf("what it was to start from: %w", err)
		}
	}
	if a.task.Kind != contract.KindGit {
		for try := 1; ; try++ {
			commit, err := a.host.Workspace.Checkpoint(ctx, a.ref, summary.BeforeTask(a.task))
			if err == nil {
				from.Base = cmp.Or(from.Base, commit)
				break
			}
			if try == MaxAttempts || !lost(err) || ctx.Err() != nil {
				return err
			}
		}
	}
	return a.move(&contract.AttemptMoved{State: contract.AttemptBegun, Base: from.Base, From: from.Kept})
}

// workOn lets the attempt's loop work until the loop has ended.
func (a *attempt) workOn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	resume := a.now.State != contract.AttemptBegun
	if resume && !a.resumable() {
		return fault.New("", fault.Unavailable, "", cmp.Or(a.lost, errors.New(interrupted)))
	}
	if a.now.State == contract.AttemptWorking && a.timeUsedUp() {
		return a.workedUntil(stopped(a.outOfTime()))
	}
	loop := a.openLoop(ctx)
	if err := a.open(ctx, resume); err != nil {
		loop.Close()
		if fault.Is(err, fault.NotFound) {
			return fault.New("", fault.Unavailable, "", err) // the tree is gone; another attempt gets a tree of its own
		}
		return err
	}
	var draft associate.Draft
	var err error
	if a.task.Program != "" {
		draft, err = a.letProgramWork(ctx)
	} else {
		draft, err = a.converse(ctx, resume, loop)
	}
	a.stop(nil)
	if unsaid := a.said.Wait(); err == nil {
		err = unsaid
	}
	a.worked += a.spent()
	switch {
	case err == nil:
	case fault.Is(err, fault.Exhausted):
		draft = stopped(err)
	case lost(err) && ctx.Err() == nil && a.early+1 < maxStarts:
		// The attempt goes on in other boxes, if its state allows that.
		a.lost = err
		if a.standing().Starts == a.now.Starts {
			a.early++ // they were lost before task.started
		}
		a.host.Logger.Warn("an attempt lost its box", "task", a.ref.Task, "attempt", a.ref.Attempt, "starts", a.now.Starts, "error", err)
		a.begun()
		return nil
	default:
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.workedUntil(draft)
}

// stopped is what a loop that has used up what it may use ends with.
func stopped(why error) associate.Draft {
	return associate.Draft{Status: contract.ResultFailed, Summary: "The task was stopped: " + why.Error() + "."}
}

// workedUntil records with what the attempt's loop has ended.
func (a *attempt) workedUntil(d associate.Draft) error {
	res := a.draft(d)
	a.now = a.standing()
	return a.move(&contract.AttemptMoved{State: contract.AttemptFinished, Result: &res})
}

// resumable reports whether an attempt whose boxes have ended goes on in others. The session of an agent
// program ends with its box, so such an attempt is only sent back to a new one.
func (a *attempt) resumable() bool {
	if a.task.Program != "" && a.now.State == contract.AttemptWorking {
		return false
	}
	return a.task.Kind.Resumes() && a.now.Resumes < maxStarts
}

// from is what the attempt's tree is made from.
func (a *attempt) from() ports.Start { return ports.Start{Base: a.now.Base, Kept: a.now.From} }

// open makes the attempt's overlay, or opens the existing one if made is true.
func (a *attempt) open(ctx context.Context, made bool) error {
	if a.overlay != nil || a.task.Kind == contract.KindGit {
		return nil
	}
	var err error
	if made {
		if a.overlay, err = a.host.Workspace.Reopen(ctx, a.ref, a.from()); err != nil {
			a.overlay = nil
			return fmt.Errorf("the interrupted attempt's tree: %w", err)
		}
		return nil
	}
	if a.overlay, err = a.host.Workspace.Begin(ctx, a.ref, a.from()); err != nil {
		a.overlay = nil
		return err
	}
	crash.At("dispatch.task.prepared")
	return nil
}

// mergeNow merges the tree that the loop left with the current live tree.
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
		// Files that no tree can hold are reported even so, for they are recorded nowhere else.
		res.Verification.Reason, res.Verification.Said = "nothing was changed", verify.SaidOf(summary.LeftBehind(m.Left))
		if len(res.Verification.Said) > 0 {
			res.Summary = harness.Clip(res.Summary+summary.Checked(res.Verification), 30<<10)
		}
		return a.move(p)
	}
	if err := a.describe(ctx, &res, m); err != nil {
		return err
	}
	// Of two that merge at the same moment, the second one knows of the first.
	a.host.merging.Lock()
	defer a.host.merging.Unlock()
	a.run.Story(func(s *story.Run) { res.Overlaps = summary.Overlaps(s, a.ref.Task, m.Changes) })
	p.Merge = &contract.AttemptMerge{Commit: m.Commit, Tree: m.Tree}
	if err := a.move(p, &contract.AttemptMoved{State: contract.AttemptVerifying}); err != nil {
		return err
	}
	crash.At("dispatch.task.merged")
	return nil
}

// theMerge returns the merge that the attempt's state names, with what the task changed. After a crash
// the changes are computed again; they do not depend on the live tree.
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

// scope returns the paths that a verification depends on, if an event can hold them. An empty scope means
// the whole live tree.
func scope(m ports.Merged) []string {
	if len(m.Scope) > contract.MaxScope || slices.ContainsFunc(m.Scope, func(p string) bool { return len(p) > 4096 }) {
		return nil
	}
	return m.Scope
}

// verifyNow verifies the merge. The transition records what the checks found.
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
	if err := a.decide(m, &contract.AttemptMoved{State: contract.AttemptVerified, Verification: &v, Scope: scope(m)}); err != nil {
		return err
	}
	crash.At("dispatch.task.verified")
	return nil
}

// publishNow applies the merge if the live tree has not changed since, and ends the attempt. When it is
// repeated after a crash, it finds that the merge was applied.
func (a *attempt) publishNow(ctx context.Context) error {
	if a.now.Decided {
		ctx = context.WithoutCancel(ctx)
	}
	if a.now.Verification.Status == contract.VerificationFail {
		return fault.New("dispatch.publish", fault.Internal, "", errors.New("what is to be published failed its checks"))
	}
	m, err := a.theMerge(ctx)
	if err != nil {
		return a.undecided(ctx, err)
	}
	force := a.now.Try > verifyTries
	p, err := a.publish(ctx, m, a.now.Verification.Status, force)
	if fault.Is(err, fault.Conflict) && !force {
		return a.persist(ctx, machine.Merge, a.mergeNow(ctx))
	}
	if err != nil {
		return a.undecided(ctx, err)
	}
	a.overcome()
	crash.At("dispatch.task.published")
	res := *a.now.Result
	res.Verification, res.Head = *a.now.Verification, p.Checkpoint
	a.tellReview(&res)
	res.Summary = harness.Clip(res.Summary+summary.Checked(res.Verification)+summary.Kept(p), 30<<10)
	a.artifacts(context.WithoutCancel(ctx), &res)
	a.adopt(context.WithoutCancel(ctx), &res)
	if a.now.Chosen() {
		a.keepLeft(&res) // the rest of it can be gone on from
	}
	return a.finished(res)
}

// undecided handles a publish whose outcome is not known. If the publish was not begun, it is given up
// after some tries. If it was begun, it will be applied, now or at the next start, so it is tried again
// for a while, of which the user is told. Then it is left as it is.
func (a *attempt) undecided(ctx context.Context, err error) error {
	a.tries++
	begun := a.standing().Decided
	if a.until == 0 {
		a.until = awake.Now() + a.host.Times.TakeBack
	}
	left := a.until - awake.Now()
	if !begun && (ctx.Err() != nil || a.tries >= MaxAttempts && (!a.now.Taken() || left <= 0)) {
		return err
	}
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

// leavePublish ends an attempt whose publish was begun without its outcome being known. Others need not
// wait for it any more, and the result says how to go back. The next start finds the outcome out by
// itself.
func (a *attempt) leavePublish(why error) error {
	res := *a.now.Result
	res.Status = contract.ResultFailed
	res.Verification = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Reason: "whether it was published is not known"}
	a.keepLeft(&res)
	res.Summary = harness.Clip(fmt.Sprintf("%s\n\nWhether this was published is not known: %s. It may be live, whole, or become so when the computer wakes the next time. To go back, restore the checkpoint “%s” in Time Travel.%s",
		res.Summary, summary.OneLine(fault.Text(why), 2000), summary.BeforeTask(a.task), hint(why)), 30<<10)

	if err := a.move(&contract.AttemptMoved{State: contract.AttemptLeft, Result: &res, Reason: summary.OneLine(fault.Text(why), 4000)}); err != nil {
		return err
	}
	a.overcome()
	return nil
}

// giveUp decides that nothing of the attempt is kept, and which result it has once its changes have been
// taken back.
func (a *attempt) giveUp(res contract.AssociateResult, again bool) error {
	return a.move(a.givenUp(res, again))
}

func (a *attempt) givenUp(res contract.AssociateResult, again bool) *contract.AttemptMoved {
	keep := res.Status != contract.ResultOK && a.mayKeep()
	return &contract.AttemptMoved{Attempt: a.ref.Attempt, State: contract.AttemptTakingBack, Result: &res, Again: again, Keep: keep}
}

// mayKeep reports whether the attempt can have written anything that is worth keeping.
func (a *attempt) mayKeep() bool {
	return a.task.Kind == contract.KindAgent || a.task.Kind == contract.KindWrite || a.task.Kind == contract.KindExec
}

// fail gives the attempt up because of an error that is not the task's own.
func (a *attempt) fail(err error) error {
	a.stop(nil)
	cancelled := errors.Is(err, ErrCancelled) || a.run.Context().Err() != nil
	if cancelled && a.run.Context().Err() != nil {
		err = context.Cause(a.run.Context()) // an error that follows from the cancelling says less
	}
	res := a.broken(err, cancelled)
	a.now = a.standing()
	if a.now.State == "" {
		return a.finished(res)
	}
	if a.now.Answer != nil {
		a.tellReview(&res) // nobody is asked once more about the same
	}
	return a.giveUp(res, !cancelled && lost(err) && a.now.Answer == nil && a.ref.Attempt < MaxAttempts)
}

// broken makes the result of an attempt that ended because of an error which is not the task's own, with
// what is known of it.
func (a *attempt) broken(err error, cancelled bool) contract.AssociateResult {
	res := contract.AssociateResult{Version: contract.Version, Task: a.ref.Task, Attempt: a.ref.Attempt, Base: a.now.Base, Commands: a.ran()}
	a.mu.Lock()
	res.Egress = contract.EgressReport{Allowed: slices.Clone(a.allowed), Denied: slices.Clone(a.denied)}
	a.mu.Unlock()
	if a.now.Result != nil {
		res.Egress, res.Usage = a.now.Result.Egress, a.now.Result.Usage
	}
	res.Status, res.Summary = contract.ResultFailed, cmp.Or(summary.OneLine(fault.Told(err), 4000), "failed")
	if cancelled {
		res.Status, res.Summary = contract.ResultCancelled, "The task was cancelled: "+summary.OneLine(fault.Text(err), 4000)+"."
		if errors.Is(err, ErrCancelled) {
			res.Summary = "The task was " + ErrCancelled.Error() + "."
		}
		if gone := a.run.Gone(); gone != nil {
			res.Status, res.Summary = contract.ResultFailed, harness.Clip("The task was ended: "+gone.Error()+".", 4000)
		}
	}
	res.Verification = a.unverified("the task did not end by itself")
	res.Repairs = a.now.Repairs
	res.Effects = a.effects()
	return res
}

// discard removes the overlay of an attempt that has its result. The result is in the log before the tree
// that it came from is removed: a crash in between leaves an overlay behind, not a task whose work nobody
// can account for. The next start removes such overlays, so a tree that must stay is kept before
// (keepTree).
func (a *attempt) discard() {
	if a.task.Kind == contract.KindGit {
		return
	}
	ctx, cancel := a.cleanUp()
	defer cancel()
	err := a.open(ctx, true)
	if err == nil {
		err = a.host.Workspace.Drop(ctx, a.overlay)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		a.host.Logger.Warn("a task's overlay could not be removed; it takes up space", "task", a.ref.Task, "attempt", a.ref.Attempt, "error", err)
	}
}

// cleanUp returns the context for work that must be done even if the run was cancelled.
func (a *attempt) cleanUp() (context.Context, context.CancelFunc) {
	return awake.WithTimeout(context.WithoutCancel(a.run.Context()), a.host.Times.CleanUp)
}
