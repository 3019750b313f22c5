package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// CheckDisplaced reads again the files that plans moved aside. A program that had one
// open may have written to it since. That is the user's newest work, and is merged into the
// live file or kept under refs/choir/kept/. A file that nobody has open for writing any
// more is removed.
func (mv *Mover) CheckDisplaced(ctx context.Context) error {
	ids, err := mv.attend()
	if err != nil {
		return err
	}
	for _, id := range ids {
		s, err := mv.standing(id)
		if err == nil && s.there {
			err = mv.checkPlan(ctx, id, s)
		}
		if err != nil {
			err = mv.setAside(ctx, id, err)
		}
		if err != nil {
			return fmt.Errorf("check what publish %s displaced: %w", id, err)
		}
	}
	return nil
}

// keepResults says for how many seconds the result of a finished plan is remembered, so
// that applying it again is recognised.
const keepResults = 24 * 3600

func (mv *Mover) checkPlan(ctx context.Context, id string, s standing) error {
	if until := s.forget(); until != never && until <= mv.now().Unix() {
		refs := mv.store.DeleteRef(ctx, PublishRef(id))
		if !s.done {
			refs = errors.Join(refs, mv.store.DeleteRef(ctx, TaskRef(id)))
		}
		return errors.Join(refs, mv.ForgetPlan(id))
	}
	r := s.result
	if len(r.Seen) == 0 {
		return nil
	}
	p, err := mv.LoadPlan(id)
	if err != nil {
		return err
	}
	changed, late := false, false
	for key, seen := range r.Seen {
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 || n >= len(p.Ops) {
			return &disk.BadFile{File: "result.json", Err: fmt.Errorf("it names step %q", key)}
		}
		file := mv.aside(id, n)
		quiet, err := noWriter(file)
		if err != nil {
			return err
		}
		now, other, err := mv.store.EntryAt(unix.AT_FDCWD, file, seen)
		if err != nil {
			return err
		}
		if now.Exists() && !other && now.Holds() != seen.Holds() {
			// What is recorded as seen is what was stored, which may already be newer.
			if r.Seen[key], err = mv.lateWrite(ctx, fmt.Sprintf("%s-%d", id, n), p.Ops[n].Path, seen, file); err != nil {
				return err
			}
			changed, late = true, true
		}
		if quiet && !other {
			if err := disk.RemoveIfThere(file); err != nil {
				return err
			}
			delete(r.Seen, key)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if !late {
		return mv.NoteResult(id, r)
	}
	return mv.SaveResult(id, r)
}

// lateWrite brings back what was written to a displaced file, and returns its content.
func (mv *Mover) lateWrite(ctx context.Context, name string, p wire.Path, seen gitstore.Entry, file string) (gitstore.Entry, error) {
	late, err := mv.keepVersion(ctx, name, p, file)
	if err != nil {
		return gitstore.None, err
	}
	err = mv.bringBack(ctx, name, p, seen, late)
	if disk.IsGone(err) || disk.IsDenied(err) {
		err = nil // it can't go back into the tree, but it is kept
	}
	return late, err
}

// bringBack merges a late version into the live file, or appends the lines that it has
// more.
func (mv *Mover) bringBack(ctx context.Context, name string, p wire.Path, seen, late gitstore.Entry) error {
	mv.scanner.Wrote(string(p))
	dir, err := disk.OpenDir(mv.scanner.Root, wire.ParentDir(string(p)))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(string(p))
	cur, err := mv.store.StoreEntryAt(ctx, dir, base)
	if err != nil || !cur.Exists() {
		return err
	}
	merged, ok, err := mv.store.MergeEntries(ctx, seen, cur, late)
	if err != nil || ok && merged == cur {
		return err
	}
	if ok {
		if err := mv.keepEntry(ctx, name, p, cur); err != nil {
			return err
		}
		if done, err := mv.exchangeMerged(ctx, p, dir, cur, merged); err != nil || done {
			return err
		}
	}
	return mv.appendLate(ctx, seen, late, dir, base)
}

// noWriter reports whether nobody has a file open for writing. On a file system without
// leases it returns true.
func noWriter(name string) (bool, error) { return NoOther(name, unix.F_RDLCK) }

// NoOther reports whether a lease on a file can be had: F_RDLCK if nobody has it open for
// writing, F_WRLCK if nobody has it open at all.
func NoOther(name string, lease int) (bool, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, nil //nolint:nilerr // a link, or gone: nothing can be open on it
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, lease)
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	return true, nil
}
