package engine

import (
	"context"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Kept lists and bounds the trees of tasks that were not published.
func (e *Engine) Kept(ctx context.Context, req wire.KeptRequest) (wire.KeptReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.moves.KeptTrees(ctx, req)
	return reply, fault.Wrap("keeper.Kept", err)
}
