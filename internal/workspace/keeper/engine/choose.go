package engine

import (
	"context"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chosen"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Hunks lists what a tree changes of another one, hunk by hunk.
func (e *Engine) Hunks(ctx context.Context, req wire.HunksRequest) (wire.HunksReply, error) {
	const op = "keeper.Hunks"
	changed, err := e.changed(ctx, req.Base, req.Tree)
	if err != nil {
		return wire.HunksReply{}, fault.Wrap(op, err)
	}
	reply, err := changed.List(ctx)
	return reply, fault.Wrap(op, err)
}

// changed compares two trees that are in the history. It holds the lock for that alone, for what
// differs in their files takes longer to find out.
func (e *Engine) changed(ctx context.Context, base, tree string) (chosen.Change, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, err := e.treeishLocked(ctx, e.store, base)
	if err != nil {
		return chosen.Change{}, err
	}
	to, err := e.treeishLocked(ctx, e.store, tree)
	if err != nil {
		return chosen.Change{}, err
	}
	return chosen.Between(ctx, e.store, from, to)
}

// Choose makes a commit on the base that has only what was chosen of a task's tree.
func (e *Engine) Choose(ctx context.Context, req wire.ChooseRequest) (wire.TreeReply, error) {
	const op = "keeper.Choose"
	if err := publish.CheckPlanID(req.ID); err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	base, err := e.store.Resolve(ctx, req.Base)
	if err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	changed, err := e.changed(ctx, base, req.Tree)
	if err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.whole(); err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	note := req.Note
	note.Kind = "kept"
	var c wire.Commit
	err = e.store.Batch(func(flush func() error) error {
		only, err := changed.Of(ctx, req.Only)
		if err != nil {
			return err
		}
		tree, err := e.store.Patch(ctx, changed.Base, only)
		if err != nil {
			return err
		}
		if c, err = e.moves.MakeCommit(ctx, tree, base, note); err != nil {
			return err
		}
		if err := e.store.ForceRef(ctx, publish.PartRef(req.ID), c.Commit); err != nil {
			return err
		}
		return flush()
	})
	if err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	d, err := e.store.Changes(ctx, changed.Base, c.Tree)
	return wire.TreeReply{Commit: c.Commit, Tree: c.Tree, Base: base, Changes: d.Changes, More: d.More}, fault.Wrap(op, err)
}
