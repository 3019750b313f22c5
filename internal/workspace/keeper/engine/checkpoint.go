package engine

import (
	"context"
	"errors"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Checkpoint commits the live tree as it is: everything except what is ignored and was
// never captured. If nothing changed, and the newest checkpoint leaves out the same paths,
// it returns that one. The commit is on disk when it returns.
func (e *Engine) Checkpoint(ctx context.Context, req wire.CheckpointRequest) (wire.CheckpointReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx = scan.WithScope(ctx, req.FullScan, req.HostWatched)
	if err := e.moves.RollForward(ctx); err != nil {
		return wire.CheckpointReply{}, fault.Wrap("keeper.Checkpoint", err)
	}
	if req.Whole && e.moves.Head == "" {
		ctx = scan.WithAll(ctx)
	}
	reply, err := e.checkpoint(ctx, req)
	return reply, fault.Wrap("keeper.Checkpoint", err)
}

// bringIndex updates .git/index for people's own git. The index is a cache: a failure to
// write it is only logged.
func (e *Engine) bringIndex(ctx context.Context) {
	if e.moves.Tree == "" {
		return
	}
	if err := e.gitIndex.Bring(ctx, e.moves.Tree, func(p string) disk.Stat { return e.scanner.Index.At(p).Stat }); err != nil {
		e.opts.Logger.Warn("the index for git in a terminal was not written", "error", err)
	}
}

func (e *Engine) checkpoint(ctx context.Context, req wire.CheckpointRequest) (wire.CheckpointReply, error) {
	if err := e.moves.CheckDisplaced(ctx); err != nil {
		return wire.CheckpointReply{}, err
	}
	var reply wire.CheckpointReply
	together := func() error {
		return e.store.Batch(func(flush func() error) (err error) {
			reply, err = e.checkpointBatched(ctx, req, flush)
			return err
		})
	}
	err := error(nil)
	if e.moves.Head == "" {
		err = e.store.First(together)
	} else {
		err = together()
	}
	if err == nil {
		reply.Unseen, e.unseen = e.unseen, nil
		reply.Unwatched = e.scanner.Unwatched()
		e.bringIndex(ctx)
	}
	return reply, err
}

// notOnDisk are the paths that a capture says were written, except those that a publish has
// just put in place durably and that are unchanged since.
func (e *Engine) notOnDisk(cap *scan.Capture) []string {
	if len(e.onDisk) == 0 {
		return cap.Touched
	}
	changed := map[string]bool{}
	for _, c := range cap.Changes {
		changed[c.Path] = true
	}
	return slices.DeleteFunc(slices.Clone(cap.Touched), func(p string) bool { return e.onDisk[p] && !changed[p] })
}

func (e *Engine) checkpointBatched(ctx context.Context, req wire.CheckpointRequest, flush func() error) (_ wire.CheckpointReply, err error) {
	cap, err := e.captureWithPuts(ctx, req.Note, flush)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	// Before the commit counts, its content is made durable in the live tree too.
	if !e.store.Unsynced() {
		if err := e.syncPaths(e.notOnDisk(cap)); err != nil {
			return wire.CheckpointReply{}, err
		}
	}
	if len(cap.Changes) == 0 && !req.Force && e.moves.Head != "" {
		c, err := e.store.Commit(ctx, e.moves.Head)
		// A file that can't be captured is worth a checkpoint for whoever reads the
		// history.
		if err != nil || cap.SameLeft(c.NotIn) {
			e.scanner.Index.Take(cap)
			if err = errors.Join(err, flush()); err != nil {
				return wire.CheckpointReply{}, err
			}
			return wire.CheckpointReply{Commit: c, Puts: e.putsKept(), NamesRead: cap.Scan.NamesRead, LeftOut: cap.LeftOut(string(req.Under))}, nil
		}
	}
	e.crash("checkpoint.captured")
	undo := e.scanner.Index.Take(cap)
	defer func() {
		if err != nil {
			undo()
		}
	}()
	tree, err := e.scanner.Index.Write(ctx, e.store)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	req.Files = len(cap.Changes)
	req.NotIn = cap.NotIn()
	if req.Verified, err = e.verified(ctx, req.Verified, ""); err != nil {
		return wire.CheckpointReply{}, err
	}
	if req.Kind == "" || e.moves.Head == "" {
		req.Kind = map[bool]string{true: "initial", false: "auto"}[e.moves.Head == ""]
	}
	c, err := e.moves.MakeCommit(ctx, tree, e.moves.Head, req.Note)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	if err := flush(); err != nil {
		return wire.CheckpointReply{}, err
	}
	e.crash("commit.written")
	if err := e.moves.Advance(c); err != nil {
		return wire.CheckpointReply{}, err
	}
	return wire.CheckpointReply{Commit: c, Created: true, Puts: e.putsKept(), NamesRead: cap.Scan.NamesRead, LeftOut: cap.LeftOut(string(req.Under))}, nil
}
