package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// A change that the host makes an event of has an intent, durable before it
// takes effect, so that what took effect is told however soon somebody died
// after it. A put's and a removal's intent is their entry in the trash; that of
// a move, of what comes back from the trash and of what is imported is a file of
// its own, .git/choir/deeds/{id}.json. Making a folder is none: it has no event.

// intent is a deed that is about to be done, and what tells afterwards whether
// it was: Content, a file or folder of the engine's own in .git/choir that went
// to its place, is gone; or what had a name (Was) has another one now.
type intent struct {
	wire.Deed
	Content string `json:"content,omitempty"`
	Was     inode  `json:"was,omitzero"`
}

// inode is what a file or folder keeps when it is renamed and shares with
// nothing that is made later.
type inode struct {
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	Born int64  `json:"born,omitempty"` // ns; 0 where the file system doesn't say
}

func inodeAt(dirfd int, name string) (inode, error) {
	var st unix.Statx_t
	if err := unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return inode{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	id := inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}

func (e *Engine) deed(id string) string { return e.store.Work("deeds", id+".json") }

// newID names a deed or an entry of the trash so that they sort by time.
func (e *Engine) newID() (id string, at int64) {
	now := e.opts.Now().UTC()
	return fmt.Sprintf("%s-%09d-%s", now.Format(trashTime), now.Nanosecond(), token()), now.UnixMilli()
}

// mean makes an intent durable.
func (e *Engine) mean(in *intent) error {
	in.ID, in.At = e.newID()
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := disk.PlainDir(e.store.Work("deeds")); err != nil {
		return err
	}
	if err := errors.Join(disk.WriteDurably(e.deed(in.ID), raw), disk.SyncDir(e.store.Work())); err != nil {
		return errors.Join(err, e.forget(in.ID))
	}
	e.crash("deed.meant")
	return nil
}

// forget removes an intent: it was told, or came to nothing. It is not synced:
// being told again is harmless, and what came to nothing is seen to have.
func (e *Engine) forget(id string) error { return disk.RemoveIfThere(e.deed(id)) }

// Untold lists the changes that took effect and of which the host may not have
// heard, oldest first.
func (e *Engine) Untold(_ context.Context) ([]wire.Deed, error) {
	const op = "keeper.Untold"
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []wire.Deed{}
	err := e.untoldEntries(func(m trashMeta, happened bool) error {
		if m.Host && happened {
			out = append(out, wire.Deed{ID: m.ID, Op: m.Op, Path: m.Path, At: m.At, Size: m.Size, SHA256: m.SHA256, Role: m.Role, User: m.User})
		}
		return nil
	})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	// Those that came to nothing are gone: see judgeDeeds.
	err = e.eachIntent(func(in intent) error { out = append(out, in.Deed); return nil })
	slices.SortFunc(out, func(a, b wire.Deed) int { return strings.Compare(a.ID, b.ID) })
	return out, fault.Wrap(op, err)
}

// Told says that the host has deeds in its log.
func (e *Engine) Told(_ context.Context, ids []string) error {
	const op = "keeper.Told"
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if err := checkPlanID(id); err != nil {
			return fault.Wrap(op, err)
		}
		if err := e.told(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(op, err)
		}
		if err := e.forget(id); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

func (e *Engine) eachIntent(visit func(intent) error) error {
	files, err := filepath.Glob(e.store.Work("deeds", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		var in intent
		if err := disk.ReadJSON(file, &in); err != nil || in.ID != strings.TrimSuffix(filepath.Base(file), ".json") {
			// Never durable, so nothing was done; or damaged, and then nobody can
			// say any more what was: the files are what they are all the same.
			e.opts.Logger.Warn("the record of a change can't be read", "file", file, "error", err)
			if err := disk.RemoveIfThere(file); err != nil {
				return err
			}
			continue
		}
		if err := visit(in); err != nil {
			return err
		}
	}
	return nil
}

// judgeDeeds forgets what a death kept from being done. It comes before anything
// that could change what tells.
func (e *Engine) judgeDeeds() error {
	return e.eachIntent(func(in intent) error {
		done, err := e.done(in)
		if err != nil || done {
			return err
		}
		return e.forget(in.ID)
	})
}

// done reports whether a deed was done.
func (e *Engine) done(in intent) (bool, error) {
	if in.Content != "" {
		there, err := disk.Exists(e.store.Work(filepath.FromSlash(in.Content)))
		return !there, err
	}
	from, err := e.inodeOf(string(in.From))
	if err != nil || from == in.Was {
		return false, err
	}
	to, err := e.inodeOf(string(in.Path))
	if err != nil || to == in.Was {
		return err == nil, err
	}
	// Somebody has been there since, such as an editor that saves by renaming:
	// it was moved if the one name is gone and the other taken.
	return from == inode{} && to != inode{}, nil
}

// inodeOf is the inode of what has a name in the live tree, or none.
func (e *Engine) inodeOf(p string) (inode, error) {
	if err := wire.CheckPath(p, false); err != nil {
		return inode{}, err
	}
	dir, err := disk.OpenDir(e.look.Root, wire.ParentDir(p))
	if err != nil {
		return inode{}, disk.IgnoreUnreachable(err)
	}
	defer unix.Close(dir)
	id, err := inodeAt(dir, path.Base(p))
	return id, disk.IgnoreUnreachable(err)
}

// carryOut does what was meant, which is one rename, and forgets the intent when
// it did not take place.
func (e *Engine) carryOut(in *intent, rename func() error) error {
	if err := e.mean(in); err != nil {
		return err
	}
	if err := rename(); err != nil {
		return errors.Join(err, e.forget(in.ID))
	}
	e.crash("deed.done")
	return nil
}

// Move renames a path; the new name must be free.
func (e *Engine) Move(ctx context.Context, req wire.MoveRequest) (wire.Deed, error) {
	const op = "keeper.Move"
	from, to := string(req.From), string(req.To)
	if err := errors.Join(badPath(from, false), badPath(to, false)); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	a, err := disk.OpenDir(e.look.Root, wire.ParentDir(from))
	if err != nil {
		return wire.Deed{}, fileError(op, from, err)
	}
	defer unix.Close(a)
	st, err := disk.Lstat(a, path.Base(from))
	if err != nil {
		return wire.Deed{}, fileError(op, from, err)
	}
	in := intent{Deed: wire.Deed{Op: "move", Path: req.To, From: req.From, Size: st.Size, Role: req.Role, User: req.User}}
	if in.Was, err = inodeAt(a, path.Base(from)); err != nil {
		return wire.Deed{}, fileError(op, from, err)
	}
	b, err := disk.MakeDirs(e.look.Root, wire.ParentDir(to))
	if err != nil {
		return wire.Deed{}, fileError(op, to, err)
	}
	defer unix.Close(b)
	if _, err := disk.Lstat(b, path.Base(to)); err == nil {
		return wire.Deed{}, fileError(op, to, unix.EEXIST)
	} else if !disk.IsGone(err) {
		return wire.Deed{}, fileError(op, to, err)
	}
	err = e.carryOut(&in, func() error { return disk.MoveTo(a, path.Base(from), b, path.Base(to)) })
	if err != nil {
		return wire.Deed{}, fileError(op, to, err)
	}
	return in.Deed, fileError(op, to, errors.Join(unix.Fsync(b), unix.Fsync(a)))
}

// Untrash puts a trash entry back where it was, or, when something else is
// there now, fails with Conflict.
func (e *Engine) Untrash(ctx context.Context, req wire.UntrashRequest) (wire.Deed, error) {
	const op = "keeper.Untrash"
	if err := checkPlanID(req.ID); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	m, err := e.entry(req.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Deed{}, fault.New(op, fault.NotFound, "`choir files trash` lists what it has.", fmt.Errorf("the trash has no entry %q", req.ID))
	}
	if err != nil {
		return wire.Deed{}, fileError(op, req.ID, err)
	}
	to := string(m.Path)
	if req.To != "" {
		to = string(req.To)
	}
	if err := badPath(to, false); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	content := e.trash(req.ID, "content")
	st, err := disk.Lstat(unix.AT_FDCWD, content)
	if err != nil {
		return wire.Deed{}, fileError(op, to, err)
	}
	dir, err := disk.MakeDirs(e.look.Root, wire.ParentDir(to))
	if err != nil {
		return wire.Deed{}, fileError(op, to, err)
	}
	defer unix.Close(dir)
	in := intent{
		Deed:    wire.Deed{Op: "untrash", Path: wire.Path(to), Size: st.Size, Role: req.Role, User: req.User},
		Content: path.Join("trash", req.ID, "content"),
	}
	err = e.carryOut(&in, func() error { return disk.MoveTo(unix.AT_FDCWD, content, dir, path.Base(to)) })
	if err != nil {
		return wire.Deed{}, fileError(op, to, err)
	}
	if err := unix.Fsync(dir); err != nil {
		return in.Deed, fileError(op, to, err)
	}
	if m.New.Exists() {
		return in.Deed, nil // the entry still names what took its place
	}
	return in.Deed, fault.Wrap(op, disk.RemoveTree(e.trash(req.ID)))
}
