package history

import (
	"context"
	"errors"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Answers are the methods of time travel: those of a History, or of something that first
// opens one for a computer that is asleep or can't wake.
type Answers interface {
	Checkpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error)
	ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error)
	Checkpoint(ctx context.Context, by contract.Actor, message string) (view.Checkpointed, error)
	Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error)
	Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error)
}

// Bind binds the methods of time travel; good returns the last checkpoint that is known to
// be good, or an error if none is known.
func Bind(t rpc.Table, h Answers, good func(context.Context) (string, error)) {
	rpc.Bind(t, rpc.CheckpointList, func(ctx context.Context, _ rpc.Caller, in rpc.CheckpointsRequest) (rpc.List[view.Checkpoint], error) {
		return rpc.Listed(h.Checkpoints(ctx, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.CheckpointGet, func(ctx context.Context, _ rpc.Caller, in rpc.ShowCheckpointRequest) (view.Checkpoint, error) {
		return h.ShowCheckpoint(ctx, in.ID)
	})
	rpc.Bind(t, rpc.CheckpointCreate, func(ctx context.Context, who rpc.Caller, in rpc.CheckpointRequest) (view.Checkpointed, error) {
		return h.Checkpoint(ctx, who.Actor, in.Body.Message)
	})
	rpc.Bind(t, rpc.CheckpointDiff, func(ctx context.Context, _ rpc.Caller, in rpc.DiffRequest) (view.Diff, error) {
		return h.Diff(ctx, in.DiffRequest)
	})
	restore := func(ctx context.Context, who rpc.Caller, r view.RestoreRequest) (view.Restored, error) {
		r.By = who.Actor
		return h.Restore(ctx, r)
	}
	rpc.Bind(t, rpc.CheckpointRestore, func(ctx context.Context, who rpc.Caller, in rpc.RestoreRequest) (view.Restored, error) {
		return restore(ctx, who, in.Body)
	})
	rpc.Bind(t, rpc.CheckpointUndo, func(ctx context.Context, who rpc.Caller, in rpc.UndoRequest) (view.Restored, error) {
		return restore(ctx, who, view.RestoreRequest{Undo: true, DryRun: in.Body.DryRun, Act: in.Body.Act})
	})
	rpc.Bind(t, rpc.CheckpointRewind, func(ctx context.Context, who rpc.Caller, in rpc.RewindRequest) (view.Restored, error) {
		to := in.Body.To
		if to == "" {
			var err error
			if to, err = good(ctx); err != nil {
				return view.Restored{}, err
			}
			if to == "" {
				return view.Restored{}, fault.New("", fault.NotFound, "Name a checkpoint to go back to.", errors.New("no checkpoint is known to be good yet"))
			}
		}
		return restore(ctx, who, in.Restore(to))
	})
}
