package engine

import (
	"context"
	"errors"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/outage"
)

// Goodbye ends the engine's work: what was written is synced and that is noted,
// so that the next one need not look for damage. Nothing is changed after it. It
// is to be said when no program is at work in the tree any more.
func (e *Engine) Goodbye(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fault.Wrap("keeper.Goodbye", e.goodbye(ctx))
}

func (e *Engine) goodbye(ctx context.Context) error {
	if e.parted {
		return nil
	}
	defer func() { e.parted = true }()
	if e.end != outage.Clean || e.damaged != nil {
		return e.saveStats() // what is not looked at yet is looked at by the next one
	}
	if err := errors.Join(e.settleTree(ctx), e.saveStats()); err != nil {
		return err
	}
	return outage.Part(e.store.Work("open"))
}
