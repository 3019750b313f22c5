package engine

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// follow puts a file in place whose content, like that of the file it replaces, the host
// has in the log.
func (e *Engine) follow(ctx context.Context, req wire.WriteRequest, file string) (w wire.Written, err error) {
	p, name := string(req.Path), path.Base(string(req.Path))
	if err := e.moves.RollForward(ctx); err != nil {
		return w, err
	}
	want, err := e.mayPut(req)
	if err != nil {
		return w, err
	}
	e.scanner.Wrote(p)
	dir, err := disk.MakeDirs(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return w, err
	}
	defer unix.Close(dir)
	if err := disk.MakeExecutable(file, dir, name, nil); err != nil {
		return w, err
	}
	made, _, err := e.store.EntryAt(unix.AT_FDCWD, file)
	if err != nil {
		return w, err
	}
	took, err := e.moves.Follow(file, req.Path, dir, name, func(was gitstore.Entry) bool { return mayDisplace(want, was) })
	if err == nil && !took {
		err = changedMeanwhile(p)
	}
	if err != nil {
		return w, err
	}
	w.FileInfo, err = info(dir, name, p)
	w.ID = made.ID
	return w, err
}

// Sync makes a file's content and its name durable. A missing file needs nothing.
func (e *Engine) Sync(_ context.Context, p string) error {
	const op = "keeper.Sync"
	if err := badPath(p, false); err != nil {
		return fault.Wrap(op, err)
	}
	err := disk.SyncBeneath(e.scanner.Root, p)
	if err == nil {
		err = disk.SyncBeneath(e.scanner.Root, wire.ParentDir(p))
	}
	return fileError(op, p, err)
}
