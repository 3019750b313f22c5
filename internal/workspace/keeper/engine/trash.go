package engine

import (
	"context"
	"errors"
	"path"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Remove moves a path, whatever it is, to the trash.
func (e *Engine) Remove(ctx context.Context, req wire.RemoveRequest) (wire.Removed, error) {
	const op = "keeper.Remove"
	p := string(req.Path)
	if err := badPath(p, false); err != nil {
		return wire.Removed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.RollForward(ctx); err != nil {
		return wire.Removed{}, fault.Wrap(op, err)
	}
	dir, err := disk.OpenDir(e.look.Root, wire.ParentDir(p))
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	defer unix.Close(dir)
	if _, err := disk.Lstat(dir, path.Base(p)); err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	e.look.Wrote(p)
	t, err := e.moves.ToTrash(dir, path.Base(p), publish.TrashEntry{Trashed: wire.Trashed{Path: req.Path}, Op: "remove", Actor: req.Actor, User: req.User, Host: true})
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	m, err := e.moves.Entry(t.ID)
	return wire.Removed{Trashed: t, At: m.At, Named: m.Named}, fileError(op, p, errors.Join(err, unix.Fsync(dir)))
}
