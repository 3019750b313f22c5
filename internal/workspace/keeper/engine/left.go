package engine

import (
	"context"

	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What no checkpoint holds is said: by the checkpoint, by what asked for it, and
// by each listing of files.

// lastLeft returns what the newest look at the tree left out, and looks if
// nobody did yet.
func (e *Engine) lastLeft(ctx context.Context) (*scan.Left, error) {
	if l := e.look.Left.Load(); l != nil {
		return l, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.look.Left.Load(); l != nil {
		return l, nil
	}
	if _, err := e.look.Capture(ctx, false); err != nil {
		return nil, err
	}
	return e.look.Left.Load(), nil
}

// markUnkept says of entries of a directory why no checkpoint holds them.
func (e *Engine) markUnkept(ctx context.Context, dir string, files []wire.FileInfo) {
	if len(files) == 0 {
		return
	}
	l, err := e.lastLeft(ctx)
	e.look.MarkUnkept(l, err, dir, files, func(p string) bool { return e.lastSeen(p).Exists() })
}
