package engine

import (
	"context"
	"errors"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/outage"
)

// Shutdown ends the engine's work in an orderly way: everything written is synced, and that
// is recorded, so that the next engine need not look for damage. Nothing can be changed
// afterwards. It must only be called when no program works in the tree any more.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fault.Wrap("keeper.Shutdown", e.shutdown(ctx))
}

func (e *Engine) shutdown(ctx context.Context) error {
	if e.shut {
		return nil
	}
	defer func() { e.shut = true }()
	if e.end != outage.Clean || e.damaged != nil {
		return e.saveStats() // what was not scanned yet, the next engine scans
	}
	if err := errors.Join(e.settleTree(ctx), e.saveStats()); err != nil {
		return err
	}
	return outage.MarkClean(e.store.Work("open"))
}
