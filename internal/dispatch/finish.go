package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/associate/verify"
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
			res.Verification = a.verify(ctx, m)
		} else {
			res.Verification = contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Tree: m.Tree, Checks: res.Verification.Checks,
				Reason: fmt.Sprintf("the user's files changed during each of %d verifications, so what was published is not what was verified", verifyTries)}
		}
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		if err := a.verified(ctx, res.Verification); err != nil {
			return res, err
		}
		if res.Verification.Status == contract.VerificationFail {
			res.Status = contract.ResultFailed
			res.Summary = "Verification failed, so nothing was published. " + res.Summary
			a.keep = a.task.OnFailure == contract.Keep
			return res, a.takeBack()
		}
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

// verify checks a merged tree: each check in a box of its own, judged by exit
// codes alone.
func (a *attempt) verify(ctx context.Context, m Merged) contract.Verification {
	profile := a.task.Verify.Profile
	if profile == contract.VerifyNone && len(a.task.Verify.Commands) == 0 {
		return verify.Judge(profile, m.Tree, nil)
	}
	facts, err := a.facts(ctx, m)
	if err != nil {
		v := verify.Judge(profile, m.Tree, nil)
		v.Reason = "what to check could not be found out: " + oneLine(fault.Text(err), 500)
		return v
	}
	var notes []string
	if facts.Cut {
		notes = append(notes, "only a part of what changed was looked at")
	}
	var checks []contract.Check
	for _, c := range verify.Plan(facts, a.task.Verify) {
		if c.Changed != "" {
			notes = append(notes, fmt.Sprintf("%s, which defines %q, was changed by this task", c.Changed, c.Name))
		}
		got := a.check(ctx, m, c)
		checks = append(checks, got)
		if got.Status == contract.VerificationFail {
			break // one failure decides; the rest would only cost time
		}
	}
	if touchesShell(m.Changes) && profile != contract.VerifyNone {
		sofar := verify.Judge(profile, m.Tree, checks)
		switch {
		case sofar.Status != contract.VerificationPass:
		case a.r.d.o.Render == nil:
			notes = append(notes, "the desktop was not rendered, only type-checked and built")
		default:
			cmd, err := a.r.d.o.Render.Render(ctx, a.overlay, m.Commit)
			if err != nil {
				cmd = contract.Command{Argv: []string{"render"}, ExitCode: -1, Stderr: oneLine(err.Error(), 1000)}
			}
			checks = append(checks, verify.JudgeCheck("renders", bound(cmd)))
		}
	}
	return verify.Judge(profile, m.Tree, checks, notes...)
}

func touchesShell(changes []contract.Change) bool {
	for _, c := range changes {
		if strings.HasPrefix(c.Path, verify.ShellDir+"/") {
			return true
		}
	}
	return false
}

func (a *attempt) inVerifyBox(ctx context.Context, m Merged, f func(Box) error) error {
	box, err := a.r.d.o.Boxes.Open(ctx, BoxRequest{ID: boxID("v"), Kind: contract.BoxVerify, Run: a.ref.Run, Task: a.ref.Task, Overlay: a.overlay, Commit: m.Commit})
	if err != nil {
		return err
	}
	defer a.r.kill(box)
	return f(box)
}

func (a *attempt) facts(ctx context.Context, m Merged) (verify.Facts, error) {
	var facts verify.Facts
	var paths []string
	for _, c := range m.Changes {
		if c.PathBase64 == "" && len(paths) < 5000 && len(c.Path) < 4096 {
			paths = append(paths, c.Path)
		}
	}
	args, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return facts, err
	}
	if len(args) > 1<<20 {
		return facts, errors.New("too many paths changed")
	}
	err = a.inVerifyBox(ctx, m, func(b Box) error {
		res, err := a.inBox(ctx, b, "facts", args)
		if err != nil {
			return err
		}
		if !res.OK {
			return errors.New(res.Output)
		}
		return json.NewDecoder(bytes.NewReader(res.Data)).Decode(&facts)
	})
	return facts, err
}

func (a *attempt) check(ctx context.Context, m Merged, c verify.Check) contract.Check {
	name, in := "run", any(map[string]any{"argv": c.Argv, "cwd": c.Cwd, "timeout_s": c.TimeoutS})
	cmd := contract.Command{Argv: c.Argv, ExitCode: -1}
	if c.Theme != "" {
		name, in = "check_theme", map[string]any{"path": c.Theme}
		cmd.Argv = []string{"check-theme", c.Theme}
	}
	args, err := json.Marshal(in)
	if err == nil {
		err = a.inVerifyBox(ctx, m, func(b Box) error {
			res, err := a.inBox(ctx, b, name, args)
			switch {
			case err != nil:
				return err
			case c.Theme != "" && res.OK:
				cmd.ExitCode = 0
			case c.Theme != "":
				cmd.ExitCode, cmd.Stderr = 1, res.Output
			case res.Command == nil:
				return errors.New(res.Output)
			default:
				cmd = *res.Command
			}
			return nil
		})
	}
	if err != nil {
		cmd.ExitCode, cmd.Stderr = -1, oneLine(err.Error(), 1000)
	}
	return verify.JudgeCheck(c.Name, bound(cmd))
}

func bound(c contract.Command) contract.Command {
	const keep = 8 << 10
	c.Truncated = c.Truncated || len(c.Stdout) > keep || len(c.Stderr) > keep
	c.Stdout, c.Stderr = clipText(c.Stdout, keep), clipText(c.Stderr, keep)
	c.DurationMS = max(0, c.DurationMS)
	return c
}
