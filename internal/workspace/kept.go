package workspace

import (
	"context"
	"time"

	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// How many kept trees a computer has at most when Options says nothing else, and for how
// long each.
const (
	defaultKeptTrees = 20
	defaultKeptFor   = 30 * 24 * time.Hour
)

// KeptTree is the tree of a task that was not published, under a ref of its own.
type KeptTree struct {
	Overlay string // the id of the overlay that it was written in
	Commit  string
	Paths   int // how many differ from the overlay's Base; only Keep says it
}

// Keep is Tree under a name of its own, which stays when the overlay is dropped. A tree
// that does not differ from the overlay's Base is not kept, and has no Commit. When Keep
// returns, the ref is durable, and the oldest kept trees beyond the bound have none.
func (w *Workspace) Keep(ctx context.Context, o Overlay, message, run, task string) (KeptTree, error) {
	const op = "workspace.Keep"
	name := o.ID + wire.KeptSuffix
	tree, err := w.tree(ctx, o, name, message, run, task)
	if err != nil {
		return KeptTree{}, fault.Wrap(op, err)
	}
	crash.At("workspace.tree.kept")
	diff, err := w.Diff(ctx, wire.DiffRequest{From: o.Base, To: tree.Commit, MaxBytes: -1, Metadata: true})
	if err != nil {
		return KeptTree{}, fault.Wrap(op, err)
	}
	paths := len(diff.Changes) + len(diff.Repositories) + diff.More
	if paths == 0 {
		return KeptTree{}, fault.Wrap(op, w.opts.Keeper.Call(ctx, "drop", wire.IDRequest{ID: name}, nil))
	}
	if _, err := w.kept(ctx, w.outlived(o.ID)); err != nil {
		w.opts.Logger.WarnContext(ctx, "kept trees beyond the bound could not be let go; it is tried again with the next", "computer", w.opts.CID, "error", err)
	}
	return KeptTree{o.ID, tree.Commit, paths}, nil
}

// KeptTrees lists the kept trees that still have a ref, newest first.
func (w *Workspace) KeptTrees(ctx context.Context) ([]KeptTree, error) {
	trees, err := w.kept(ctx, wire.KeptRequest{})
	return trees, fault.Wrap("workspace.KeptTrees", err)
}

// outlived asks for the removal of the refs of kept trees that are too old or too many, but
// for that of one overlay: a clock that was set back must not cost the tree that was kept
// this moment.
func (w *Workspace) outlived(but string) wire.KeptRequest {
	return wire.KeptRequest{Most: w.opts.KeptTrees, Before: w.opts.Now().Add(-w.opts.KeptFor).Unix(), But: but}
}

func (w *Workspace) kept(ctx context.Context, req wire.KeptRequest) ([]KeptTree, error) {
	var reply wire.KeptReply
	if err := w.opts.Keeper.Call(ctx, "kept", req, &reply); err != nil {
		return nil, err
	}
	out := make([]KeptTree, 0, len(reply.Trees))
	for _, t := range reply.Trees {
		out = append(out, KeptTree{Overlay: t.ID, Commit: t.Commit})
	}
	if len(reply.Removed) > 0 {
		w.opts.Logger.InfoContext(ctx, "kept trees of tasks were let go", "computer", w.opts.CID, "trees", reply.Removed)
	}
	return out, nil
}
