package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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
	Received   *Received
	Message    string
	By         contract.Actor
}

// Received is what was pushed into the history of the computer's own files, beside which it
// lies until it is published.
type Received struct {
	Base string // the checkpoint that it goes on from
	Tip  string
	wire.ReceiveReply
}

// Receive takes commits and what they hold beside the history: a list of all objects of tip
// that base does not have, of most bytes at most. It comes from a box that checked them,
// and is looked at here as if none had. Nothing that is there changes by it, and it goes
// with the overlay of the push.
func (w *Workspace) Receive(ctx context.Context, o Overlay, base, tip string, most int64, from io.Reader) (Received, error) {
	const op = "workspace.Receive"
	out := Received{Base: base, Tip: tip}
	resp, err := w.opts.Keeper.Stream(ctx, "receive", wire.ReceiveRequest{ID: o.ID, Base: base, Tip: tip, Most: most}, from)
	if err != nil {
		return out, fault.Wrap(op, err)
	}
	defer resp.Body.Close()
	err = wire.Decode(resp.Body, &out.ReceiveReply)
	out.Commits, out.Subject = max(0, out.Commits), contract.Line(contract.Clip(out.Subject, 200))
	return out, fault.Wrap(op, err)
}

// Push publishes what an overlay holds of one repository, all of it or nothing: a
// repository of which a part stays as the user has it is none. It is refused with
// fault.Conflict where both sides changed the same, and with fault.Denied where
// something outside of the repository was written.
func (w *Workspace) Push(ctx context.Context, req PushRequest) (Published, error) {
	const op = "workspace.Push"
	pushed, err := w.pushed(ctx, req)
	if err != nil {
		return Published{}, fault.Wrap(op, err)
	}
	pushed.Task = req.Overlay.ID
	pushed.Note = by(req.By, wire.Note{Kind: string(contract.CheckpointPush), Message: req.Message, Verified: string(contract.VerificationUnknown)})
	pushed.ID, pushed.Whole = contract.DeriveID(req.ID, "publish"), true
	p, err := w.publish(ctx, "prepare", pushed, "")
	if err == nil && p.Commit == "" {
		err = unmerged(req, p.Conflicts)
	}
	return p, fault.Wrap(op, err)
}

// pushed is what a push brings, and from where on.
func (w *Workspace) pushed(ctx context.Context, req PushRequest) (wire.PrepareRequest, error) {
	if r := req.Received; r != nil {
		return wire.PrepareRequest{Base: r.Base, Tree: r.Tip, Pushed: r.Tip, Received: req.Overlay.ID}, nil
	}
	tree, err := w.Tree(ctx, req.Overlay, req.Message, "", "")
	within := []wire.Path{wire.Path(req.Repository)}
	if err == nil && !defence.Off(defence.GitBeneath) {
		err = w.onlyWithin(ctx, req.Overlay.Base, tree.Commit, within)
	}
	return wire.PrepareRequest{Base: req.Overlay.Base, Tree: tree.Commit, Paths: within}, err
}

// unmerged says why a push changes nothing.
func unmerged(req PushRequest, conflicts []wire.Conflict) error {
	if req.Received == nil {
		return fault.New("", fault.Conflict, "Fetch, and push again.",
			fmt.Errorf("the repository was changed in the computer meanwhile: %s", contract.Clip(fmt.Sprint(shown(conflicts)), 400)))
	}
	var first []string
	for i, p := range shown(conflicts[:min(len(conflicts), 5)]) {
		first = append(first, contract.Clip(p, 100)+": "+contract.Line(contract.Clip(conflicts[i].Reason, 120)))
	}
	if n := len(conflicts) - len(first); n > 0 {
		first = append(first, fmt.Sprintf("and %d more", n))
	}
	return fault.New("", fault.Conflict, "Fetch, merge, and push again; what is ignored is left out of commits.",
		fmt.Errorf("nothing was changed, for this does not go together with the computer's files: %s", strings.Join(first, "; ")))
}

// onlyWithin refuses a commit that differs from its base anywhere but beneath the
// given paths.
func (w *Workspace) onlyWithin(ctx context.Context, base, commit string, paths []wire.Path) error {
	all, err := w.Diff(ctx, wire.DiffRequest{From: base, To: commit, MaxBytes: -1, Metadata: true, Index: true})
	if err != nil {
		return err
	}
	some, err := w.Diff(ctx, wire.DiffRequest{From: base, To: commit, Paths: paths, MaxBytes: -1, Metadata: true, Index: true})
	if err != nil {
		return err
	}
	same := func(a, b wire.Change) bool { return a == b }
	if len(all.Changes)+all.More != len(some.Changes)+some.More || !slices.EqualFunc(all.Repositories, some.Repositories, same) {
		return fault.New("", fault.Denied, "Give the repository files of its own, then push again.", errors.New("the repository writes outside of its own folder"))
	}
	return nil
}
