package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
)

// verifyTries is how often a merge is verified again because the live tree has changed since. After that
// it is published without being verified in that state, and the result says so.
const verifyTries = 2

const maxChanges = 2000

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
	u.ToolCalls, u.WallMS = a.calls, max(0, (awake.Now()-a.began).Milliseconds())
	res := contract.AssociateResult{Version: contract.Version, Task: a.ref.Task, Attempt: a.ref.Attempt, Status: d.Status,
		Summary: cmp.Or(harness.Clip(d.Summary, 16<<10), "(no summary)"), Base: a.now.Base, Commands: a.ran(),
		Egress: contract.EgressReport{Allowed: a.allowed, Denied: a.denied}, Usage: u, SuggestedNext: harness.Clip(d.SuggestedNext, 4<<10),
		Verification: contract.Verification{Profile: a.task.Verify.Profile, Status: contract.VerificationUnknown}}
	switch d.Status {
	case contract.ResultOK, contract.ResultFailed, contract.ResultCancelled:
	case contract.ResultNeedsInput:
		res.Questions = []contract.Question{{ID: contract.DeriveID(a.ref.Task, fmt.Sprintf("question:%d", a.ref.Attempt)), Text: cmp.Or(harness.Clip(d.Question, 8<<10), res.Summary)}}
	default:
		res.Status = contract.ResultFailed
	}
	switch {
	case res.Status != contract.ResultOK:
		res.Verification.Reason = "the task did not succeed"
	case a.task.Kind == contract.KindGit:
		res.Verification.Reason = "an operation on the history has nothing to check"
		res.Head = a.head
	case a.task.Kind == contract.KindInspect:
		res.Verification.Reason = "a task that only reads has nothing to check"
	}
	return res
}

// maxRan bounds the commands that a result lists.
const maxRan = 60

// ran returns the commands that the attempt ran according to the log, including those from before a
// restart.
func (a *attempt) ran() []contract.Command {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	t := a.run.story.Task(a.ref.Task)
	if t.Now.Number != a.ref.Attempt {
		return nil
	}
	var out []contract.Command
	for _, c := range t.Calls {
		if got := t.Returns[c.Call]; got.Command != nil && len(out) < maxRan {
			out = append(out, *got.Command)
		}
	}
	return out
}

// metered returns what the attempt's model calls consumed according to the log.
func (a *attempt) metered() contract.Usage {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	return a.run.story.Task(a.ref.Task).Metered
}

func (a *attempt) merge(ctx context.Context) (ports.Merged, error) {
	a.run.dispatcher.publishing.Lock()
	defer a.run.dispatcher.publishing.Unlock()
	return a.run.dispatcher.options.Workspace.Merge(ctx, a.overlay)
}

func (a *attempt) publish(ctx context.Context, m ports.Merged, v contract.VerificationStatus, force bool) (ports.Published, error) {
	a.run.dispatcher.publishing.Lock()
	defer a.run.dispatcher.publishing.Unlock()
	others, err := a.run.dispatcher.liveElsewhere(ctx, a.ref)
	if err != nil {
		return ports.Published{}, err
	}
	if others {
		// Another task's edits are in the live tree, unverified.
		v = contract.VerificationUnknown
	}
	return a.run.dispatcher.options.Workspace.Publish(ctx, a.overlay, m, v, force)
}

// liveElsewhere reports whether, according to the log, another attempt has edits in the live tree that
// are neither published nor taken back.
func (d *Dispatcher) liveElsewhere(ctx context.Context, but ports.TaskRef) (bool, error) {
	runs, err := d.caughtUp(ctx)
	if err != nil {
		return false, err
	}
	live := false
	for _, r := range runs {
		r.mu.Lock()
		for _, t := range r.story.Tasks {
			live = live || t.Now.Live && t.Request.ID != but.Task
		}
		r.mu.Unlock()
	}
	return live, nil
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
	ref, _, err := a.run.dispatcher.options.Blobs.Put(ctx, a.run.dispatcher.options.CID, strings.NewReader(m.Diff))
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
	f, err := a.run.dispatcher.options.Workspace.Artifact(ctx, commit, p)
	if err != nil {
		return contract.Artifact{}, err
	}
	ref, size, err := a.run.dispatcher.options.Blobs.Put(ctx, a.run.dispatcher.options.CID, f)
	return contract.Artifact{Path: p, Ref: ref, Size: size}, errors.Join(err, f.Close())
}
