package engine

import (
	"context"
	"errors"
	"fmt"
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
	want, err := e.mayRemove(dir, req)
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	e.look.Wrote(p)
	t, err := e.moves.ToTrash(dir, path.Base(p), publish.TrashEntry{Trashed: wire.Trashed{Path: req.Path}, Op: "remove", Want: want, Actor: req.Actor, User: req.User, Host: true})
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	if err := e.removedWanted(t, dir, want); err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	m, err := e.moves.Entry(t.ID)
	return wire.Removed{Trashed: t, At: m.At, Named: m.Named}, fileError(op, p, errors.Join(err, unix.Fsync(dir)))
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

// removedWanted examines what was removed. If it is not what the caller wanted to remove it
// is moved back; if something is there by then, it stays in the trash.
func (e *Engine) removedWanted(t wire.Trashed, dir int, want string) error {
	if want == "" {
		return nil
	}
	was, err := e.moves.Compared(t.ID)
	if err == nil && was {
		return nil
	}
	err = errors.Join(changedMeanwhile(string(t.Path)), err)
	e.look.Invalidate() // a folder may appear there
	if back := disk.MoveTo(unix.AT_FDCWD, e.moves.Trash(t.ID, "content"), dir, path.Base(string(t.Path))); back != nil {
		return errors.Join(err, fmt.Errorf("what was there is in the trash: %w", back))
	}
	return errors.Join(err, unix.Fsync(dir), e.moves.RemoveEntry(t.ID))
}
