package engine

import (
	"context"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Tree reads what a task wrote. The upper is hostile: links are not followed, devices and
// sockets are left out and listed, and so is a .git at its root.
func (e *Engine) Tree(ctx context.Context, req wire.TreeRequest) (wire.TreeReply, error) {
	const op = "keeper.Tree"
	if err := publish.CheckPlanID(req.ID); err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.upperTree(ctx, req)
	return reply, fault.Wrap(op, err)
}

func (e *Engine) upperTree(ctx context.Context, req wire.TreeRequest) (wire.TreeReply, error) {
	if err := e.whole(); err != nil {
		return wire.TreeReply{}, err
	}
	base, err := e.store.Resolve(ctx, req.Base)
	if err != nil {
		return wire.TreeReply{}, err
	}
	baseID, err := e.treeish(ctx, base, "HEAD")
	if err != nil {
		return wire.TreeReply{}, err
	}
	root, err := e.uppers.Open(req.Upper)
	if err != nil {
		return wire.TreeReply{}, err
	}
	defer unix.Close(root)
	note := req.Note
	note.Kind = "kept"
	if note.Message == "" {
		note.Message = "The task's own tree"
	}
	var c wire.Commit
	var skipped []wire.Skip
	err = e.store.Batch(func(flush func() error) error {
		made, left, err := e.scanner.Upper(ctx, root, e.store.Lazy(ctx, baseID))
		if err != nil {
			return err
		}
		tree, err := e.store.Patch(ctx, baseID, made)
		if err != nil {
			return err
		}
		skipped = left
		if c, err = e.moves.MakeCommit(ctx, tree, base, note); err != nil {
			return err
		}
		if err := e.store.ForceRef(ctx, publish.TaskRef(req.ID), c.Commit); err != nil {
			return err
		}
		return flush()
	})
	if err != nil {
		return wire.TreeReply{}, err
	}
	d, err := e.store.Changes(ctx, baseID, c.Tree)
	return wire.TreeReply{Commit: c.Commit, Tree: c.Tree, Base: base, Changes: d.Changes, More: d.More, Left: skipped}, err
}

// SettleUpper makes durable what a task has written since it was last called: a task that is
// resumed continues with its upper, and does not repeat writes that it was told had succeeded.
func (e *Engine) SettleUpper(ctx context.Context, req wire.SettleUpperRequest) (wire.SettleUpperReply, error) {
	touched, err := e.uppers.Settle(ctx, req.Upper, req.Paths)
	return wire.SettleUpperReply{Touched: touched}, fault.Wrap("keeper.SettleUpper", err)
}

// Filled says which of a task's folders contain anything, beneath what its boxes wrote.
func (e *Engine) Filled(ctx context.Context, req wire.FilledRequest) (wire.FilledReply, error) {
	return e.uppers.Filled(ctx, req)
}
