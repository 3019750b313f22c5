package engine

import (
	"context"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Snapshot makes sure that a commit is checked out, and returns its layers.
func (e *Engine) Snapshot(ctx context.Context, commit string) (wire.SnapshotReply, error) {
	const op = "keeper.Snapshot"
	id, err := e.store.Resolve(ctx, commit)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	tree, err := e.treeish(ctx, id, "HEAD")
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	names, err := e.layers.Show(ctx, tree)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	return wire.SnapshotReply{Commit: id, Tree: tree, Layers: names}, nil
}

// ReleaseSnapshots removes every layer except those to keep and those of the newest
// snapshot, on which the next one is based.
func (e *Engine) ReleaseSnapshots(ctx context.Context, keep []string) error {
	return fault.Wrap("keeper.ReleaseSnapshots", e.layers.Release(ctx, keep))
}
