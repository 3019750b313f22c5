package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// PushRequest asks to bring what was pushed into a repository into the live tree.
type PushRequest struct {
	ID         string // idempotent: the same id publishes once
	Overlay    Overlay
	Repository string // where it lies; nothing else is published
	Message    string
	By         contract.Actor
}

// pushTries is how often a merge is tried anew when the live tree has changed in
// between.
const pushTries = 3

// Push publishes what an overlay holds of one repository, all of it or nothing: a
// repository of which a part stays as the user has it is none. It is refused with
// fault.Conflict where both sides changed the same, and with fault.Denied where
// something outside of the repository was written.
func (w *Workspace) Push(ctx context.Context, req PushRequest) (Published, error) {
	const op = "workspace.Push"
	tree, err := w.Tree(ctx, req.Overlay, req.Message, "", "")
	if err != nil {
		return Published{}, fault.Wrap(op, err)
	}
	within := []wire.Path{wire.Path(req.Repository)}
	if !defence.Off(defence.GitBeneath) {
		if err := w.onlyWithin(ctx, req.Overlay.Base, tree.Commit, within); err != nil {
			return Published{}, fault.Wrap(op, err)
		}
	}
	prepare := func(what string) wire.PrepareRequest {
		return wire.PrepareRequest{
			ID: contract.DeriveID(req.ID, what), Base: req.Overlay.Base, Tree: tree.Commit, Paths: within, Task: req.Overlay.ID,
			Note: by(req.By, wire.Note{Kind: string(contract.CheckpointPush), Message: req.Message, Verified: string(contract.VerificationUnknown)}),
		}
	}
	for range pushTries {
		// No tree has the id "none", so this is prepared and not applied.
		p, err := w.publish(ctx, "prepare", prepare("merge"), "none")
		if err != nil {
			return p, fault.Wrap(op, err)
		}
		if len(p.Conflicts) > 0 {
			return p, fault.New(op, fault.Conflict, "Fetch, and push again.",
				fmt.Errorf("the repository was changed in the computer meanwhile: %s", contract.Clip(fmt.Sprint(shown(p.Conflicts)), 400)))
		}
		if p, err = w.publish(ctx, "prepare", prepare("publish"), p.MergedTree); err != nil || p.Reverify == "" {
			return p, fault.Wrap(op, err)
		}
	}
	return Published{}, fault.New(op, fault.Unavailable, "Push again.", errors.New("the computer's files change all the time"))
}

// onlyWithin refuses a commit that differs from its base anywhere but beneath the
// given paths.
func (w *Workspace) onlyWithin(ctx context.Context, base, commit string, paths []wire.Path) error {
	all, err := w.Diff(ctx, wire.DiffRequest{A: base, B: commit, MaxBytes: -1, Metadata: true, Index: true})
	if err != nil {
		return err
	}
	some, err := w.Diff(ctx, wire.DiffRequest{A: base, B: commit, Paths: paths, MaxBytes: -1, Metadata: true, Index: true})
	if err != nil {
		return err
	}
	same := func(a, b wire.Change) bool { return a == b }
	if len(all.Changes)+all.More != len(some.Changes)+some.More || !slices.EqualFunc(all.Repositories, some.Repositories, same) {
		return fault.New("", fault.Denied, "Give the repository files of its own, then push again.", errors.New("the repository writes outside of its own folder"))
	}
	return nil
}
