package engine

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
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
	if err := e.moves.BeforeAct(ctx); err != nil {
		return wire.Removed{}, fault.Wrap(op, err)
	}
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	defer unix.Close(dir)
	want, err := e.mayRemove(dir, req)
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	e.scanner.Wrote(p)
	m, err := e.moves.Remove(publish.TrashEntry{Trashed: wire.Trashed{Path: req.Path}, Op: "remove", Want: want, Actor: req.Actor, User: req.User, Host: true}, dir, changedMeanwhile(p))
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	return wire.Removed{Trashed: m.Trashed, At: m.At, Named: m.Named}, nil
}

// mayRemove checks, before anything is moved, whether a path may be removed, and returns
// what it must contain: If, with the name of a state resolved.
func (e *Engine) mayRemove(dir int, req wire.RemoveRequest) (string, error) {
	p := string(req.Path)
	st, err := disk.Lstat(dir, path.Base(p))
	switch {
	case err != nil:
		return "", err
	case req.If == "none":
		return "", changedMeanwhile(p)
	case req.If == "" || req.If == "any":
		return "", nil
	case !st.IsRegular() && !st.IsSymlink():
		return "", changedMeanwhile(p) // its content can't be identified
	}
	return e.heldBy(dir, path.Base(p), p, req.If)
}
