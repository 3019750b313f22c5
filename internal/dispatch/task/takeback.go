package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/view"
)

// againFirst and againMost are how long the dispatcher waits, at first and at most, before it tries again
// to take back changes or to finish a publish that was begun. After tellAfter tries the user is told.
const (
	againFirst = 100 * time.Millisecond
	againMost  = 30 * time.Second
	tellAfter  = 4
)

// takeBack reverts what the attempt showed live, and ends the attempt. If that fails, it is tried again
// for a while, of which the user is told; then it stays, and the result says how to get rid of it.
func (a *attempt) takeBack() error {
	a.stop(nil)
	// An attempt whose loop never worked can't have shown anything.
	if a.task.Kind == contract.KindGit || a.now.Starts == 0 {
		return a.finished(*a.now.Result)
	}
	until := awake.Now() + a.host.Times.TakeBack
	name := summary.Title(a.task.Goal)
	for {
		kept, err := a.invert()
		if err == nil {
			a.overcome()
			res := *a.now.Result
			res.Summary = harness.Clip(res.Summary+summary.Stays(kept), 30<<10)
			if err := a.keepTree(&res, until); err != nil {
				return err
			}
			return a.finished(res)
		}
		left := until - awake.Now()
		if left <= 0 {
			return a.leave(err)
		}
		cancelled, waitErr := a.again(trouble{fmt.Sprintf("What “%s” showed live can't be taken back", name), a.untilThen(left)}, err)
		if waitErr != nil {
			return waitErr
		}
		if cancelled {
			return a.leave(err)
		}
	}
}

// keepTree keeps what the attempt wrote, for whoever goes on from it or looks at it, and names it in the
// result. It is durable before the result is in the log, because from then on a start removes the
// overlay; a death in between keeps it once more, under the same ref. If it fails, for example on a full
// disk, it is tried again for a while; then the result says that the files could not be kept.
func (a *attempt) keepTree(res *contract.AssociateResult, until time.Duration) error {
	for a.now.Keep {
		err := a.keepOnce(res)
		if err == nil {
			a.overcome()
			return nil
		}
		left := until - awake.Now()
		cancelled := false
		if left > 0 {
			how := fmt.Sprintf("It is tried again until %s; then it goes. Cancel the run to let it go now", a.host.Now().Add(left).UTC().Format("15:04 MST"))
			var waitErr error
			if cancelled, waitErr = a.again(trouble{fmt.Sprintf("What “%s” wrote can't be kept", summary.Title(a.task.Goal)), how}, err); waitErr != nil {
				return waitErr
			}
		}
		if left <= 0 || cancelled {
			a.overcome()
			res.Summary = harness.Clip(fmt.Sprintf("%s\n\nWhat it wrote could not be kept: %s.%s", res.Summary, summary.OneLine(fault.Text(err), 2000), hint(err)), 30<<10)
			return nil
		}
	}
	return nil
}

// keepOnce tries once to keep what the attempt wrote. Of a tree that is gone nothing can be kept.
func (a *attempt) keepOnce(res *contract.AssociateResult) error {
	ctx, cancel := a.cleanUp()
	defer cancel()
	kept, err := a.host.Workspace.Keep(ctx, a.overlay)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	crash.At("dispatch.task.kept")
	res.Kept = kept
	return nil
}

// keepLeft is keepOnce for an attempt whose changes stay in the live tree, or may be there. It is not
// tried again, for nobody is to wait for it any longer.
func (a *attempt) keepLeft(res *contract.AssociateResult) {
	if a.overlay == nil || !a.mayKeep() {
		return
	}
	if err := a.keepOnce(res); err != nil {
		res.Summary = harness.Clip(fmt.Sprintf("%s\n\nWhat it wrote could not be kept: %s.%s", res.Summary, summary.OneLine(fault.Text(err), 2000), hint(err)), 30<<10)
	}
}

// untilThen describes to the user for how long something is tried again, and what happens then.
func (a *attempt) untilThen(left time.Duration) string {
	how := fmt.Sprintf("It is tried again until %s; then it stays, and you can restore the checkpoint “%s” in Time Travel", a.host.Now().Add(left).UTC().Format("15:04 MST"), summary.BeforeTask(a.task))
	if a.run.Context().Err() == nil {
		how += ". Cancel the run to leave it as it is now"
	}
	return how
}

// leave ends taking back without success: what was shown stays live, unverified, and the result says how
// to go back.
func (a *attempt) leave(why error) error {
	res := *a.now.Result
	a.keepLeft(&res)
	res.Summary = harness.Clip(fmt.Sprintf("%s\n\nWhat it had shown live could not be taken back: %s. It is still there, unverified. To go back, restore the checkpoint “%s” in Time Travel.%s",
		res.Summary, summary.OneLine(fault.Text(why), 2000), summary.BeforeTask(a.task), hint(why)), 30<<10)

	if err := a.move(&contract.AttemptMoved{State: contract.AttemptLeft, Result: &res, Reason: summary.OneLine(fault.Text(why), 4000)}); err != nil {
		return err
	}
	a.overcome()
	return nil
}

func hint(err error) string {
	if h := fault.HintOf(err); h != "" {
		return " " + h
	}
	return ""
}

// invert tries once to take back. Its time limit starts when it has got the lock.
func (a *attempt) invert() ([]view.Kept, error) {
	a.host.publishing.Lock()
	defer a.host.publishing.Unlock()
	ctx, cancel := a.cleanUp()
	defer cancel()
	err := a.open(ctx, true)
	if fault.Is(err, fault.NotFound) {
		err = a.open(ctx, false) // what it showed live can be reverted without its files
	}
	if err != nil {
		return nil, err
	}
	kept, err := a.host.Workspace.Invert(ctx, a.overlay)
	if err != nil {
		return nil, err
	}
	crash.At("dispatch.task.inverted")
	return kept, nil
}

// trouble is what the user is told when something that must be done fails.
type trouble struct{ what, how string }

// again waits before something is tried once more, longer each time. Once the user has been told, other
// tasks may use the slot meanwhile. left is true if the user has cancelled the run since.
func (a *attempt) again(t trouble, err error) (left bool, _ error) {
	a.pause = min(max(2*a.pause, againFirst), againMost)
	a.failed++
	a.host.Logger.Error(t.what+"; it is tried again until it is done, also after a restart", "task", a.ref.Task, "attempt", a.ref.Attempt, "after", a.pause, "error", err)
	var cancelled <-chan struct{}
	if a.run.Context().Err() == nil {
		cancelled = a.run.Context().Done()
	}
	wait := func() error {
		timer := time.NewTimer(a.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.run.Awake().Done():
			return ErrClosing
		case <-cancelled:
			left = errors.Is(context.Cause(a.run.Context()), ErrCancelled)
		}
		if closing(a.run) {
			return ErrClosing
		}
		return nil
	}
	if a.failed < tellAfter {
		if err := wait(); err != nil {
			return false, err
		}
		return false, nil // the user has not been told yet what cancelling would do here
	}
	if a.told == nil {
		a.told = a.run.Waits(harness.Clip(fmt.Sprintf("%s: %s.%s %s.", t.what, summary.OneLine(fault.Text(err), 1500), hint(err), t.how), 4<<10))
		ctx, cancel := a.cleanUp()
		defer cancel()
		if err := a.run.Settle(ctx); err != nil {
			a.host.Logger.Warn("the user could not be told what can't be done", "task", a.ref.Task, "error", err)
		}
	}
	err = a.run.Rest(a.ref.Task, wait)
	if err != nil && !closing(a.run) && a.run.Context().Err() != nil {
		err = nil // a cancelled run gets no slot again, and goes on without one
	}
	return left, err
}

// persist waits, so that a step which failed with err is tried again, where what is lost otherwise is the whole
// work of a loop that has finished, or what a person has decided. It returns err when that does not help, or
// the step was tried as often as a step may be.
func (a *attempt) persist(ctx context.Context, step machine.Step, err error) error {
	what := "What “%s” made can't be merged and checked now"
	switch step {
	case machine.Follow:
		what = "What you decided about “%s” can't be done now"
	case machine.Merge, machine.Check, machine.Verify, machine.Decide:
	default:
		return err
	}
	if err == nil {
		a.overcome()
		return nil
	}
	if !passing(err) || ctx.Err() != nil || a.failed+1 >= maxRepeats {
		return err
	}
	_, err = a.again(trouble{what: fmt.Sprintf(what, summary.Title(a.task.Goal)), how: fmt.Sprintf("It is tried again, %d times in all", maxRepeats)}, err)
	return err
}

// settled reports whether the attempt's result is decided, so that an error does not change it: it is given up,
// its publish was begun, or it has only to be concluded. Of the last two an error that does not pass still
// makes a failure.
func (a *attempt) settled(err error) bool {
	now := a.standing()
	switch now.State {
	case contract.AttemptTakingBack, contract.AttemptLeft, contract.AttemptEnded:
		return true
	}
	step := now.Next(a.task.Kind)
	return passing(err) && (step == machine.Conclude || step == machine.Publish && now.Decided)
}

// overcome tells the user that the trouble is over, if they were told of it.
func (a *attempt) overcome() {
	a.pause, a.failed = 0, 0
	if a.told == nil {
		return
	}
	a.told()
	a.told = nil
	ctx, cancel := a.cleanUp()
	defer cancel()
	if err := a.run.Settle(ctx); err != nil && !closing(a.run) {
		a.host.Logger.Warn("the user could not be told that a trouble is over", "task", a.ref.Task, "error", err)
	}
}
