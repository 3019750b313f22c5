package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
)

// verifyTries is how often a merge is verified again because the live tree has changed since. After that
// it is published without being verified in that state, and the result says so.
const verifyTries = 2

const maxChanges = 2000

// maxRequests bounds what a worker asks of whoever plans.
const maxRequests = 8

// draft makes the result from what the loop may decide, and from what the host counted itself.
func (a *attempt) draft(d associate.Draft) contract.AssociateResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := d.Usage
	if u.Validate() != nil {
		u = contract.Usage{}
	}
	if m := a.metered(); m.TokensIn+m.TokensOut > 0 || m.CostUSD > 0 {
		u = m // the host's own count takes precedence over the loop's
	}
	u.ToolCalls, u.WallMS = a.calls, max(0, a.worked.Milliseconds())
	res := contract.AssociateResult{Version: contract.Version, Task: a.ref.Task, Attempt: a.ref.Attempt, Status: d.Status,
		Summary: cmp.Or(harness.Clip(d.Summary, 16<<10), "(no summary)"), Base: a.now.Base, Commands: a.ran(),
		Egress: contract.EgressReport{Allowed: a.allowed, Denied: a.denied}, Usage: u, SuggestedNext: harness.Clip(d.SuggestedNext, 4<<10),
		Repairs: a.now.Repairs, Verification: contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown}}
	a.run.Story(func(s *story.Run) { res.Citations = s.Cited.By(a.ref.Task) })
	res.Effects = a.effects()
	for _, q := range d.Requests[:min(len(d.Requests), maxRequests)] {
		if q.Text = strings.TrimSpace(harness.Clip(q.Text, 2000)); q.Validate() == nil {
			res.Requests = append(res.Requests, q)
		}
	}
	switch d.Status {
	case contract.ResultOK, contract.ResultFailed, contract.ResultCancelled:
	case contract.ResultNeedsInput:
		res.Questions = []contract.Question{{ID: contract.DeriveID(a.ref.Task, fmt.Sprintf("question:%d", a.ref.Attempt)), Text: cmp.Or(harness.Clip(d.Question, 8<<10), res.Summary)}}
	default:
		res.Status = contract.ResultFailed
	}
	switch {
	case res.Status != contract.ResultOK:
		res.Verification = a.unverified("the task did not succeed")
	case a.task.Kind == contract.KindGit:
		res.Verification.Reason = "an operation on the history has nothing to check"
		res.Head = a.head
	case a.task.Kind.OnlyReads():
		res.Verification.Reason = "a task that only reads has nothing to check"
	}
	return res
}

// unverified is the verification of an attempt that ended before its work was checked: what was found when it
// was last sent back, for that was not repaired, and unknown if it never was.
func (a *attempt) unverified(reason string) contract.Verification {
	if a.now.Repairs > 0 && a.now.Verification != nil && a.now.Verification.Status == contract.VerificationFail {
		return *a.now.Verification
	}
	return contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown, Reason: reason}
}

// maxRan bounds the commands that a result lists.
const maxRan = 60

// ran returns the commands that the attempt ran according to the log, including those from before a
// restart.
func (a *attempt) ran() []contract.Command {
	var out []contract.Command
	a.run.Story(func(s *story.Run) {
		t := s.Task(a.ref.Task)
		if t.Now.Number != a.ref.Attempt {
			return
		}
		for _, c := range t.Calls {
			if got := t.Returns[c.Call]; got.Command != nil && len(out) < maxRan {
				out = append(out, *got.Command)
			}
		}
	})
	return out
}

// metered returns what the attempt's model calls consumed according to the log.
func (a *attempt) metered() (u contract.Usage) {
	a.run.Story(func(s *story.Run) { u = s.Task(a.ref.Task).Metered })
	return u
}

func (a *attempt) merge(ctx context.Context) (ports.Merged, error) {
	a.host.publishing.Lock()
	defer a.host.publishing.Unlock()
	var took ports.Took
	if a.now.Taken() {
		took = ports.Took{Work: a.now.Work, Only: a.now.Answer.Only}
	}
	return a.host.Workspace.Merge(ctx, a.overlay, took)
}

func (a *attempt) publish(ctx context.Context, m ports.Merged, v contract.VerificationStatus, force bool) (ports.Published, error) {
	a.host.publishing.Lock()
	defer a.host.publishing.Unlock()
	others, err := a.run.LiveElsewhere(ctx, a.ref.Task)
	if err != nil {
		return ports.Published{}, err
	}
	if others {
		// Another task's edits are in the live tree, unverified.
		v = contract.VerificationUnknown
	}
	return a.host.Workspace.Publish(ctx, a.overlay, m, v, force)
}

// describe adds the changes and their diff to the result.
func (a *attempt) describe(ctx context.Context, res *contract.AssociateResult, m ports.Merged) error {
	res.Changes = m.Changes
	if len(res.Changes) > maxChanges {
		res.Changes = res.Changes[:maxChanges]
	}
	res.Diff, res.DiffRef = "", ""
	if len(m.Diff) <= 16<<10 {
		res.Diff = strings.ToValidUTF8(m.Diff, "\uFFFD")
		return nil
	}
	ref, _, err := a.host.Blobs.Put(ctx, a.host.CID, strings.NewReader(m.Diff))
	res.DiffRef = ref
	return fault.Wrap("dispatch.diff", err)
}

// artifacts stores the files that the task's sender wants as blobs. The work is published already, so an
// artifact that can't be stored is named in the result and changes nothing else.
func (a *attempt) artifacts(ctx context.Context, res *contract.AssociateResult) {
	for _, p := range a.task.Want.Artifacts {
		kept, err := a.artifact(ctx, res.Head, p)
		switch {
		case fault.Is(err, fault.NotFound):
			res.Summary += fmt.Sprintf("\n\nThe wanted artifact %s is not there.", summary.OneLine(p, 200))
		case err != nil:
			res.Summary += fmt.Sprintf("\n\nThe wanted artifact %s could not be kept: %s", summary.OneLine(p, 200), summary.OneLine(fault.Text(err), 300))
		default:
			res.Artifacts = append(res.Artifacts, kept)
		}
	}
}

func (a *attempt) artifact(ctx context.Context, commit, p string) (contract.Artifact, error) {
	f, err := a.host.Workspace.Artifact(ctx, commit, p)
	if err != nil {
		return contract.Artifact{}, err
	}
	ref, size, err := a.host.Blobs.Put(ctx, a.host.CID, f)
	return contract.Artifact{Path: p, Ref: ref, Size: size}, errors.Join(err, f.Close())
}
