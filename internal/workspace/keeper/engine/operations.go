package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// UnloggedOperations lists the operations that took effect and that the host may not have in its log,
// oldest first.
func (e *Engine) UnloggedOperations(_ context.Context) ([]wire.Operation, error) {
	const op = "keeper.UnloggedOperations"
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []wire.Operation{}
	err := e.moves.UnloggedEntries(func(m publish.TrashEntry, happened bool) error {
		if m.Host && happened {
			out = append(out, m.Operation())
		}
		return nil
	})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	// Those that had no effect have been removed: see judgeDeeds.
	err = e.moves.EachIntent(func(in publish.Intent) error { out = append(out, in.Operation); return nil })
	slices.SortFunc(out, func(a, b wire.Operation) int { return strings.Compare(a.ID, b.ID) })
	return out, fault.Wrap(op, err)
}

// OperationsLogged says that the host has operations in its log.
func (e *Engine) OperationsLogged(_ context.Context, ids []string) error {
	const op = "keeper.OperationsLogged"
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if err := publish.CheckPlanID(id); err != nil {
			return fault.Wrap(op, err)
		}
		if err := e.moves.MarkLogged(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(op, err)
		}
		if err := e.moves.Forget(id); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// Move renames a path; the new name must be free.
func (e *Engine) Move(ctx context.Context, req wire.MoveRequest) (wire.Operation, error) {
	const op = "keeper.Move"
	from, to := string(req.From), string(req.To)
	if err := errors.Join(badPath(from, false), badPath(to, false)); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.BeforeAct(ctx); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	a, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(from))
	if err != nil {
		return wire.Operation{}, fileError(op, from, err)
	}
	defer unix.Close(a)
	st, err := disk.Lstat(a, path.Base(from))
	if err != nil {
		return wire.Operation{}, fileError(op, from, err)
	}
	e.scanner.Invalidate() // a folder may appear there
	b, err := disk.MakeDirs(e.scanner.Root, wire.ParentDir(to))
	if err != nil {
		return wire.Operation{}, fileError(op, to, err)
	}
	defer unix.Close(b)
	if _, err := disk.Lstat(b, path.Base(to)); err == nil {
		return wire.Operation{}, fileError(op, to, unix.EEXIST)
	} else if !disk.IsGone(err) {
		return wire.Operation{}, fileError(op, to, err)
	}
	m, err := e.moves.Move(publish.TrashEntry{Trashed: wire.Trashed{Path: req.To}, From: req.From, Op: "move", Size: st.Size, Actor: req.Actor, User: req.User, Host: true}, a, b)
	return m.Operation(), fileError(op, to, err)
}

// Untrash puts a trash entry back where it was, or, when something else is
// there now, fails with Conflict.
func (e *Engine) Untrash(ctx context.Context, req wire.UntrashRequest) (wire.Operation, error) {
	const op = "keeper.Untrash"
	if err := publish.CheckPlanID(req.ID); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.RollForward(ctx); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	m, err := e.moves.Entry(req.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Operation{}, fault.New(op, fault.NotFound, "`choir files trash` lists what it has.", fmt.Errorf("the trash has no entry %q", req.ID))
	}
	if err != nil {
		return wire.Operation{}, fileError(op, req.ID, err)
	}
	to := string(m.Path)
	if req.To != "" {
		to = string(req.To)
	}
	if err := badPath(to, false); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	content := e.moves.Trash(req.ID, "content")
	st, err := disk.Lstat(unix.AT_FDCWD, content)
	if err != nil {
		return wire.Operation{}, fileError(op, to, err)
	}
	e.scanner.Invalidate() // a folder may appear there
	dir, err := disk.MakeDirs(e.scanner.Root, wire.ParentDir(to))
	if err != nil {
		return wire.Operation{}, fileError(op, to, err)
	}
	defer unix.Close(dir)
	in := publish.Intent{
		Operation: wire.Operation{Op: "untrash", Path: wire.Path(to), Size: st.Size, Actor: req.Actor, User: req.User},
		Content:   path.Join("trash", req.ID, "content"),
	}
	if err := e.moves.NoteTaken(m); err != nil {
		return wire.Operation{}, fileError(op, to, err)
	}
	err = e.moves.CarryOut(&in, func() error { return disk.MoveTo(unix.AT_FDCWD, content, dir, path.Base(to)) })
	if err != nil {
		return wire.Operation{}, fileError(op, to, err)
	}
	if err := unix.Fsync(dir); err != nil {
		return in.Operation, fileError(op, to, err)
	}
	if m.New.Exists() {
		return in.Operation, nil // the entry still names what it replaced
	}
	return in.Operation, fault.Wrap(op, e.moves.RemoveEntry(req.ID))
}
