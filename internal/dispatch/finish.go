package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
)

// Tries at publishing what was verified. In the last one the live tree may
// have changed again: it is published unverified, and says so.
const verifyTries = 2

const maxChanges = 2000

// conclude turns a loop's draft into the attempt's result: what is kept is
// merged, verified and published, what is not is taken back.
func (a *attempt) conclude(ctx context.Context, d associate.Draft) (contract.AssociateResult, error) {
	res := a.draft(d)
	if d.Status != contract.ResultOK {
		a.keep = a.task.OnFailure == contract.Keep
		return res, a.takeBack()
	}
	switch a.task.Kind {
	case contract.KindGit:
		res.Verification.Reason = "an operation on the history has nothing to check"
		a.mu.Lock()
		res.Head = a.head
		a.mu.Unlock()
		return res, nil
	case contract.KindInspect:
		res.Verification.Reason = "a task that only reads has nothing to check"
		return res, nil
	}
	return a.accept(ctx, res)
}

// draft is the result as far as the loop may say it.
func (a *attempt) draft(d associate.Draft) contract.AssociateResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := d.Usage
	if u.Validate() != nil {
		u = contract.Usage{}
	}
	u.ToolCalls, u.WallMS = a.calls, max(0, a.r.d.o.Now().Sub(a.began).Milliseconds())
	res := contract.AssociateResult{Version: contract.Version, Task: a.ref.Task, Attempt: a.ref.Attempt, Status: d.Status,
		Summary: firstText(clipText(d.Summary, 16<<10), "(no summary)"), Base: a.base, Commands: a.commands,
		Egress: contract.EgressReport{Allowed: a.allowed, Denied: a.denied}, Usage: u, SuggestedNext: clipText(d.SuggestedNext, 4<<10),
		Verification: contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown}}
	switch d.Status {
	case contract.ResultOK, contract.ResultFailed, contract.ResultCancelled:
	case contract.ResultNeedsInput:
		res.Questions = []contract.Question{{ID: contract.DeriveID(a.ref.Task, fmt.Sprintf("question:%d", a.ref.Attempt)), Text: firstText(clipText(d.Question, 8<<10), res.Summary)}}
	default:
		res.Status = contract.ResultFailed
	}
	if res.Status != contract.ResultOK {
		res.Verification.Reason = "the task did not succeed"
	}
	return res
}

// accept merges, verifies and publishes what the task left in its overlay.
func (a *attempt) accept(ctx context.Context, res contract.AssociateResult) (contract.AssociateResult, error) {
	summary := res.Summary
	for try := 1; ; try++ {
		m, err := a.merge(ctx)
		if err != nil {
			return res, err
		}
		if len(m.Changes) == 0 {
			res.Verification.Reason = "nothing was changed"
			return res, a.takeBack()
		}
		if err := a.describe(ctx, &res, m); err != nil {
			return res, err
		}
		crash.At("dispatch.task.merged")
		if try <= verifyTries {
			res.Verification = a.verify(ctx, &m)
		} else {
			res.Verification = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Tree: m.Tree, Checks: res.Verification.Checks,
				Reason: fmt.Sprintf("files that it depends on were changed by others during each of %d verifications, so what was published is not what was verified", verifyTries)}
		}
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		if err := a.verified(ctx, res.Verification); err != nil {
			return res, err
		}
		if res.Verification.Status == contract.VerificationFail {
			res.Status = contract.ResultFailed
			res.Summary = "Verification failed, so nothing was published. " + summary + checked(res.Verification)
			a.keep = a.task.OnFailure == contract.Keep
			return res, a.takeBack()
		}
		res.Summary = clipText(summary+checked(res.Verification), 28<<10)
		crash.At("dispatch.task.verified")
		p, err := a.publish(ctx, m, res.Verification.Status, try > verifyTries)
		if fault.Is(err, fault.Conflict) && try <= verifyTries {
			continue
		}
		if err != nil {
			return res, err
		}
		crash.At("dispatch.task.published")
		res.Head = p.Checkpoint
		if len(p.Conflicts) > 0 {
			list := strings.Join(p.Conflicts, ", ")
			res.Summary = clipText(fmt.Sprintf("%s\n\nChanged by the user meanwhile, so kept as the user has them: %s", res.Summary, list), 30<<10)
		}
		if len(p.Proposed) > 0 {
			res.Summary = clipText(fmt.Sprintf("%s\n\nWaiting for the user as proposals: %s", res.Summary, strings.Join(p.Proposed, ", ")), 30<<10)
		}
		return res, a.artifacts(ctx, &res)
	}
}

func (a *attempt) merge(ctx context.Context) (Merged, error) {
	a.r.d.publishing.Lock()
	defer a.r.d.publishing.Unlock()
	return a.r.d.o.Workspace.Merge(ctx, a.overlay)
}

func (a *attempt) publish(ctx context.Context, m Merged, v contract.VerificationStatus, force bool) (Published, error) {
	a.r.d.publishing.Lock()
	defer a.r.d.publishing.Unlock()
	mine := int64(0)
	if a.live {
		mine = 1
	}
	if a.r.d.liveOpen.Load() > mine {
		// Another task's edits are in the live tree, unverified.
		v = contract.VerificationUnknown
	}
	p, err := a.r.d.o.Workspace.Publish(ctx, a.overlay, m, v, force)
	if err == nil {
		a.notLive()
	}
	return p, err
}

func (a *attempt) verified(ctx context.Context, v contract.Verification) error {
	_, err := a.r.append(ctx, contract.Draft{Role: contract.RoleSystem, Type: "verification.finished", Subject: a.ref.Task, Task: a.ref.Task,
		Data: &contract.VerificationFinished{Attempt: a.ref.Attempt, Verification: v}})
	return err
}

// describe puts what changed into the result.
func (a *attempt) describe(ctx context.Context, res *contract.AssociateResult, m Merged) error {
	res.Changes = m.Changes
	if len(res.Changes) > maxChanges {
		res.Changes = res.Changes[:maxChanges]
	}
	res.Diff, res.DiffRef = "", ""
	if len(m.Diff) <= 16<<10 {
		res.Diff = strings.ToValidUTF8(m.Diff, "\uFFFD")
		return nil
	}
	ref, _, err := a.r.d.o.Blobs.Put(ctx, a.r.d.o.CID, strings.NewReader(m.Diff))
	res.DiffRef = ref
	return fault.Wrap("dispatch.diff", err)
}

// artifacts keeps the files the task's sender wants as blobs.
func (a *attempt) artifacts(ctx context.Context, res *contract.AssociateResult) error {
	for _, p := range a.task.Want.Artifacts {
		f, err := a.r.d.o.Workspace.Artifact(ctx, res.Head, p)
		if fault.Is(err, fault.NotFound) {
			res.Summary += fmt.Sprintf("\n\nThe wanted artifact %s is not there.", oneLine(p, 200))
			continue
		}
		if err != nil {
			return err
		}
		ref, size, err := a.r.d.o.Blobs.Put(ctx, a.r.d.o.CID, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fault.Wrap("dispatch.artifact", err)
		}
		res.Artifacts = append(res.Artifacts, contract.Artifact{Path: p, Ref: ref, Size: size})
	}
	return nil
}
