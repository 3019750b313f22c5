package engine

import (
	"context"

	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What no checkpoint holds is reported: by the checkpoint, by the request that caused it,
// and by each listing of files.

// lastLeft returns what the newest scan of the tree left out, scanning if there was none
// yet.
func (e *Engine) lastLeft(ctx context.Context) (*scan.Unkept, error) {
	if l := e.scanner.Unkept.Load(); l != nil {
		return l, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.scanner.Unkept.Load(); l != nil {
		return l, nil
	}
	if _, err := e.scanner.Capture(ctx, false); err != nil {
		return nil, err
	}
	return e.scanner.Unkept.Load(), nil
}

// markUnkept marks the entries of a directory that no checkpoint holds, with the reason.
func (e *Engine) markUnkept(ctx context.Context, dir string, files []wire.FileInfo) {
	if len(files) == 0 {
		return
	}
	l, err := e.lastLeft(ctx)
	e.scanner.MarkUnkept(l, err, dir, files, func(p string) bool { return e.lastSeen(p).Exists() })
}
