package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Undo undoes an operation by another one, which can be undone too: what was removed comes
// back, what was overwritten takes its place again, what was new goes to the trash. What
// has changed since the operation stays as it is.
func (e *Engine) Undo(ctx context.Context, req wire.UndoRequest) (wire.UndoReply, error) {
	const op = "keeper.Undo"
	reply, err := e.undo(ctx, req)
	return reply, fault.Wrap(op, err)
}

func (e *Engine) undo(ctx context.Context, req wire.UndoRequest) (wire.UndoReply, error) {
	switch req.Op {
	case "remove":
		return e.undoRemove(ctx, req)
	case "write":
		return e.undoWrite(ctx, req)
	case "back":
		if err := e.presence(req.Path, false); err == nil {
			return e.undoRemove(ctx, req)
		}
		return e.undoWrite(ctx, req)
	case "move":
		reply := wire.UndoReply{Changes: []wire.Change{changeOf(req.Path, "deleted"), changeOf(req.From, "added")}}
		if err := errors.Join(e.presence(req.Path, true), e.presence(req.From, false)); err != nil || req.DryRun {
			return reply, err
		}
		d, err := e.Move(ctx, wire.MoveRequest{From: req.Path, To: req.From, Actor: req.Actor, User: req.User})
		reply.Operation = d
		return reply, err
	case "untrash", "import":
		return e.undoNew(ctx, req)
	}
	return wire.UndoReply{}, fault.New("", fault.Invalid, "", fmt.Errorf("a deed %q can't be undone", wire.Short(req.Op)))
}

// undoRemove puts something back from the trash.
func (e *Engine) undoRemove(ctx context.Context, req wire.UndoRequest) (wire.UndoReply, error) {
	reply := wire.UndoReply{Changes: []wire.Change{changeOf(req.Path, "added")}}
	if _, err := e.thrownAway(req.ID); err != nil {
		return reply, err
	}
	if _, err := disk.Lstat(unix.AT_FDCWD, e.moves.Trash(req.ID, "content")); err != nil {
		return reply, fileError("", string(req.Path), err)
	}
	if err := e.presence(req.Path, false); err != nil || req.DryRun {
		return reply, err
	}
	d, err := e.Untrash(ctx, wire.UntrashRequest{ID: req.ID, Actor: req.Actor, User: req.User})
	reply.Operation = d
	return reply, err
}

// undoNew moves what an operation made to the trash.
func (e *Engine) undoNew(ctx context.Context, req wire.UndoRequest) (wire.UndoReply, error) {
	reply := wire.UndoReply{Changes: []wire.Change{changeOf(req.Path, "deleted")}}
	if err := e.presence(req.Path, true); err != nil || req.DryRun {
		return reply, err
	}
	r, err := e.Remove(ctx, wire.RemoveRequest{Path: req.Path, Actor: req.Actor, User: req.User})
	reply.Operation = wire.Operation{ID: r.ID, Op: "remove", Path: req.Path, At: r.At, Actor: req.Actor, User: req.User, Named: r.Named}
	return reply, err
}

// undoWrite puts what a put displaced in its place again; if there was nothing, what was
// put is removed.
func (e *Engine) undoWrite(ctx context.Context, req wire.UndoRequest) (wire.UndoReply, error) {
	m, err := e.thrownAway(req.ID)
	if err != nil {
		return wire.UndoReply{}, err
	}
	content := e.moves.Trash(req.ID, "content")
	st, err := disk.Lstat(unix.AT_FDCWD, content)
	if disk.IsGone(err) && m.Taken {
		return wire.UndoReply{}, fault.New("", fault.Conflict, "Move it back from there: choir files mv. `choir restore ID --path PATH` goes back to a checkpoint.", fmt.Errorf("what was at %q before was brought back to another place", req.Path.Shown()))
	}
	if disk.IsGone(err) && req.Op == "write" {
		if now, err := e.Stat(ctx, string(req.Path)); err != nil {
			return wire.UndoReply{}, err
		} else if now.ID != m.New.ID {
			return wire.UndoReply{}, changedMeanwhile(string(req.Path))
		}
		return e.undoNew(ctx, req)
	}
	if err != nil {
		return wire.UndoReply{}, err
	}
	reply := wire.UndoReply{Changes: []wire.Change{changeOf(req.Path, "modified")}}
	if !st.IsRegular() && !st.IsSymlink() {
		return reply, fault.New("", fault.Conflict, fmt.Sprintf("`choir files untrash %s PATH` brings it back under another name.", req.ID),
			fmt.Errorf("what was at %q before is a %s", req.Path.Shown(), st.Kind()))
	}
	in := wire.WriteRequest{Path: req.Path, If: m.New.ID, Actor: req.Actor, User: req.User}
	switch now, err := e.Stat(ctx, string(req.Path)); {
	case fault.Is(err, fault.NotFound): // somebody removed what was put
		reply.Changes[0].Op, in.If = "added", "none"
	case err != nil:
		return reply, err
	case req.Op == "back":
		in.If = now.ID
	case now.ID != m.New.ID:
		return reply, changedMeanwhile(string(req.Path))
	}
	if req.DryRun {
		return reply, nil
	}
	exec := st.IsRegular() && st.Mode&0o100 != 0
	in.Exec = &exec
	old, _, err := disk.OpenContent(unix.AT_FDCWD, content, -1)
	if err != nil {
		return reply, err
	}
	put := e.Write
	if st.IsSymlink() {
		put = e.writeLink
	}
	w, err := put(ctx, in, old)
	reply.Operation = wire.Operation{ID: w.Op, Op: "write", Path: req.Path, At: w.At, Size: w.Size, SHA256: w.SHA256, Actor: req.Actor, User: req.User, Named: w.Named}
	return reply, errors.Join(err, old.Close())
}

// writeLink is Write for a symlink, whose content is its target.
func (e *Engine) writeLink(ctx context.Context, req wire.WriteRequest, content io.Reader) (wire.Written, error) {
	target, err := io.ReadAll(io.LimitReader(content, unix.PathMax))
	if err != nil {
		return wire.Written{}, err
	}
	tmp := e.store.Work("incoming-" + publish.Token())
	if err := os.Symlink(string(target), tmp); err != nil {
		return wire.Written{}, err
	}
	sum := sha256.Sum256(target)
	w, err := e.replaceFile(ctx, req, tmp, hex.EncodeToString(sum[:]), nil)
	w.SHA256 = hex.EncodeToString(sum[:])
	return w, errors.Join(err, disk.RemoveIfThere(tmp))
}

// thrownAway reads an entry of the trash.
func (e *Engine) thrownAway(id string) (publish.TrashEntry, error) {
	if err := publish.CheckPlanID(id); err != nil {
		return publish.TrashEntry{}, err
	}
	m, err := e.moves.Entry(id)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fault.New("", fault.NotFound, "`choir checkpoints` lists what else there is of the past.", errors.New("what was there is no longer in the trash, which keeps things for a week"))
	}
	return m, err
}

func changeOf(p wire.Path, op string) wire.Change {
	return wire.Change{Path: p, Op: op, Added: -1, Removed: -1}
}

// presence is the error when something that must exist at a path does not, or something
// exists that must not.
func (e *Engine) presence(p wire.Path, wanted bool) error {
	if err := badPath(string(p), false); err != nil {
		return err
	}
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(string(p)))
	if err == nil {
		_, err = disk.Lstat(dir, path.Base(string(p)))
		err = errors.Join(err, unix.Close(dir))
	}
	switch {
	case err == nil && !wanted:
		return fileError("", string(p), unix.EEXIST)
	case disk.IsGone(err) && !wanted:
		return nil
	}
	return fileError("", string(p), err)
}
