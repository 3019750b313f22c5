package engine

import (
	"context"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chosen"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Hunks lists what a tree changes of another one, hunk by hunk.
func (e *Engine) Hunks(ctx context.Context, req wire.HunksRequest) (wire.HunksReply, error) {
	const op = "keeper.Hunks"
	_, _, changes, err := e.changesOf(ctx, req.Base, req.Tree)
	if err != nil {
		return wire.HunksReply{}, fault.Wrap(op, err)
	}
	reply, err := chosen.List(ctx, e.store, changes)
	return reply, fault.Wrap(op, err)
}

// changesOf compares two trees that are in the history. It holds the lock for that alone, for what
// differs in their files takes longer to find out.
func (e *Engine) changesOf(ctx context.Context, base, tree string) (from, to string, changes []gitstore.Change, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if from, err = e.treeishLocked(ctx, e.store, base); err != nil {
		return
	}
	if to, err = e.treeishLocked(ctx, e.store, tree); err != nil {
		return
	}
	changes, err = chosen.Changes(ctx, e.store, from, to)
	return
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
	from, _, changes, err := e.changesOf(ctx, base, req.Tree)
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
		only, err := chosen.Of(ctx, e.store, changes, req.Only)
		if err != nil {
			return err
		}
		tree, err := e.store.Patch(ctx, from, only)
		if err != nil {
			return err
		}
		if c, err = e.moves.MakeCommit(ctx, tree, base, note); err != nil {
			return err
		}
		if err := e.store.ForceRef(ctx, publish.TaskRef(req.ID), c.Commit); err != nil {
			return err
		}
		return flush()
	})
	if err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	d, err := e.store.Changes(ctx, from, c.Tree)
	return wire.TreeReply{Commit: c.Commit, Tree: c.Tree, Base: base, Changes: d.Changes, More: d.More}, fault.Wrap(op, err)
}
