package engine

import (
	"context"
	"errors"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Invert prepares the inversion of everything that a task published live. What the user
// changed at the same places since stays, as a conflict.
func (e *Engine) Invert(ctx context.Context, req wire.InvertRequest) (wire.PrepareReply, error) {
	const op = "keeper.Invert"
	if err := errors.Join(publish.CheckPlanID(req.ID), publish.CheckPlanID(req.Task)); err != nil {
		return wire.PrepareReply{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	published, err := e.store.TreeOf(ctx, publish.LiveRef(req.Task))
	if err != nil {
		return wire.PrepareReply{}, fault.Wrap(op, err)
	}
	if published == "" {
		return wire.PrepareReply{ID: req.ID, Changed: []wire.Path{}, Nothing: true}, nil
	}
	req.Note.Kind = "auto"
	reply, err := e.prepare(ctx, wire.PrepareRequest{ID: req.ID, Base: published, Tree: req.Base, Kind: "invert", Note: req.Note})
	return reply, fault.Wrap(op, err)
}

// Drop forgets a task's overlay tree and its live publishes.
func (e *Engine) Drop(ctx context.Context, task string) error {
	const op = "keeper.Drop"
	if err := publish.CheckPlanID(task); err != nil {
		return fault.Wrap(op, err)
	}
	e.uppers.Forget(task)
	return fault.Wrap(op, errors.Join(e.pushes.Drop(task), e.store.DeleteRef(ctx, publish.TaskRef(task)), e.store.DeleteRef(ctx, publish.PartRef(task)), e.store.DeleteRef(ctx, publish.LiveRef(task))))
}

// MarkLogged records that every checkpoint up to commit is in the host's log.
func (e *Engine) MarkLogged(ctx context.Context, commit string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, err := e.store.Resolve(ctx, commit)
	if err != nil {
		return fault.Wrap("keeper.MarkLogged", err)
	}
	return fault.Wrap("keeper.MarkLogged", e.store.ForceRef(ctx, gitstore.Logged, id))
}

// Unmarked lists the checkpoints after the last one marked, oldest first.
func (e *Engine) Unmarked(ctx context.Context) ([]wire.Commit, error) {
	const op = "keeper.Unmarked"
	if err := e.readable(); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if e.Head() == "" {
		return []wire.Commit{}, nil
	}
	revs := []string{gitstore.Main}
	id, err := e.store.NameOf(ctx, gitstore.Logged)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if id != "" {
		revs = append(revs, "^"+id)
	}
	out, err := e.store.Log(ctx, 1_000_000, revs...)
	slices.Reverse(out)
	return out, fault.Wrap(op, err)
}

// Maintain packs loose objects, so that a history of many checkpoints stays small and fast,
// and merges the newest snapshot's layers. Nothing is ever pruned.
func (e *Engine) Maintain(ctx context.Context) error {
	const op = "keeper.Maintain"
	return fault.Wrap(op, errors.Join(e.maintain(ctx), e.layers.Squash(ctx)))
}

func (e *Engine) maintain(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.store.Settle(); err != nil {
		return err
	}
	// Git does not report its own lock, and then packs nothing.
	if err := e.store.Unlock("objects/maintenance", "objects/pack/multi-pack-index"); err != nil {
		return err
	}
	for _, task := range []string{"loose-objects", "incremental-repack"} {
		if _, err := e.store.Git(ctx, nil, "-c", "core.multiPackIndex=true", "maintenance", "run", "--quiet", "--task="+task); err != nil {
			return errors.Join(err, e.store.RemoveAll(gitstore.TornPacks))
		}
	}
	return e.saveStats()
}
