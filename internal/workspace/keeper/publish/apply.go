package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// FinishPlan carries out what is left of a plan that has started, and returns the paths
// that this call put in place. It may be called again after any interruption.
func (mv *Mover) FinishPlan(ctx context.Context, id string) (_ wire.Applied, placed []wire.Path, err error) {
	if r, done, err := mv.LoadResult(id); err != nil || done {
		return r.Applied, nil, err
	}
	p, err := mv.LoadPlan(id)
	if err != nil {
		return wire.Applied{}, nil, err
	}
	if mv.Head != p.From && mv.Head != p.Commit {
		return wire.Applied{}, nil, fault.New("", fault.Conflict, "Prepare it again.", &stalePlanError{id, p.From, mv.Head})
	}
	if err := mv.adopted(p); err != nil {
		return wire.Applied{}, nil, err
	}
	if err := mv.stage(ctx, p); err != nil {
		return wire.Applied{}, nil, err
	}
	a := applier{mover: mv, plan: p, target: mv.store.Lazy(ctx, p.Tree), seen: map[string]gitstore.Entry{}}
	for n, s := range p.Ops {
		if err := ctx.Err(); err != nil {
			return wire.Applied{}, nil, err
		}
		err := a.step(ctx, n, s)
		if disk.IsDenied(err) && !defence.Off(defence.KeeperDeniedPaths) {
			err = a.denied(n, s)
		}
		if err = errors.Join(err, a.target.Err()); err != nil {
			return wire.Applied{}, nil, fmt.Errorf("put %q in place: %w", s.Path.Shown(), err)
		}
		mv.crash("apply.step")
	}
	if err := mv.syncParents(p); err != nil {
		return wire.Applied{}, nil, err
	}
	mv.crash("apply.placed")
	c, err := mv.store.Commit(ctx, p.Commit)
	if err != nil {
		return wire.Applied{}, nil, err
	}
	if mv.Head == p.From && p.From != p.Commit {
		if err := mv.Advance(c); err != nil {
			return wire.Applied{}, nil, err
		}
		for _, s := range p.Ops {
			if s.To.Exists() {
				mv.scanner.Index.Set(string(s.Path), scan.Tracked{Entry: s.To})
			} else {
				mv.scanner.Index.Delete(string(s.Path))
			}
		}
	}
	r := Result{
		Applied: wire.Applied{Publish: p.ID, Kind: p.Kind, Base: p.Base, Live: p.Live, Paths: len(p.Ops), Commit: c, Conflicts: append(p.Conflicts, a.conflicts...)},
		Seen:    a.seen, Since: mv.now().Unix(),
	}
	err = mv.store.Batch(func(flush func() error) error {
		if p.Mark != "" {
			if err := mv.store.ForceRef(ctx, LiveRef(p.Task), p.Mark); err != nil {
				return err
			}
		}
		if err := mv.SaveResult(id, r); err != nil {
			return err
		}
		return flush()
	})
	if err != nil {
		return wire.Applied{}, nil, err
	}
	mv.crash("apply.done")
	for _, s := range p.Ops {
		placed = append(placed, s.Path)
	}
	return r.Applied, placed, nil
}

// stage writes every file that the plan puts in place to aside/, durably, before the first
// one is moved, so that a crash of the machine never leaves half a file.
func (mv *Mover) stage(ctx context.Context, p Plan) error {
	if done, err := disk.Exists(mv.PlanDir(p.ID, "staged")); err != nil || done {
		return err
	}
	if err := disk.RemoveTree(mv.PlanDir(p.ID, "aside")); err != nil {
		return err
	}
	if err := os.Mkdir(mv.PlanDir(p.ID, "aside"), 0o755); err != nil {
		return err
	}
	writes := 0
	for _, s := range p.Ops {
		if s.To.ID != "" {
			writes++
		}
	}
	for n, s := range p.Ops {
		if s.To.ID == "" {
			continue
		}
		if err := mv.MaterializeAt(ctx, mv.aside(p.ID, n), s.To, s.Path, writes <= disk.SyncAllAbove); err != nil {
			return err
		}
		mv.crash("apply.staging")
	}
	if writes > disk.SyncAllAbove {
		if err := unix.Syncfs(mv.scanner.Root); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
	}
	for _, dir := range []string{mv.PlanDir(p.ID, "aside"), mv.PlanDir(p.ID), mv.store.Work("publish")} {
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	return mv.Mark(p.ID, "staged")
}

func (mv *Mover) syncParents(p Plan) error {
	dirs := map[string]bool{}
	for _, s := range p.Ops {
		dirs[wire.ParentDir(string(s.Path))] = true
	}
	if len(dirs) > disk.SyncAllAbove {
		return unix.Syncfs(mv.scanner.Root)
	}
	for d := range dirs {
		if err := disk.SyncDirAt(mv.scanner.Root, d); err != nil && !disk.IsGone(err) && !disk.IsDenied(err) {
			return err
		}
	}
	return nil
}

type applier struct {
	mover     *Mover
	plan      Plan
	target    *gitstore.Lazy
	conflicts []wire.Conflict
	seen      map[string]gitstore.Entry
}

// needed reports whether the target tree has a directory at a path. It returns true if that
// can't be read, so that the directory stays.
func (a *applier) needed(p string) bool {
	return a.target.Folder(p) || a.target.At(p).Mode == wire.ModeEmptyDir || a.target.Err() != nil
}

func (a *applier) conflict(p wire.Path, reason string) {
	a.conflicts = append(a.conflicts, wire.Conflict{Path: p, Reason: reason})
}

// step carries out one step, whatever point an earlier try reached.
func (a *applier) step(ctx context.Context, n int, s Step) error {
	p := string(s.Path)
	if err := wire.CheckPath(p, false); err != nil {
		return fault.New("", fault.Invalid, "", fmt.Errorf("path %q %w", wire.Short(p), err))
	}
	a.mover.scanner.Wrote(p)
	if s.From.Mode == wire.ModeEmptyDir && s.To.Mode != wire.ModeEmptyDir {
		if s.To.Exists() || !a.needed(p) {
			a.removeDir(p)
		}
		s.From = gitstore.None
		if !s.To.Exists() {
			return nil
		}
	}
	if s.To.Mode == wire.ModeEmptyDir {
		if s.From.Exists() {
			if err := a.remove(ctx, n, s); err != nil {
				return err
			}
		}
		fd, err := disk.MakeDirs(a.mover.scanner.Root, p)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EEXIST) {
			return nil // the user has a file there, for which a directory gives way
		}
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	if !s.To.Exists() {
		return a.remove(ctx, n, s)
	}
	return a.place(ctx, n, s)
}

// denied handles a step that file permissions prevent: the path stays as it is and is
// reported as a conflict. What was already moved aside is kept.
func (a *applier) denied(n int, s Step) error {
	a.conflict(s.Path, "its permissions, or those of its folder, keep it from being changed")
	aside := a.mover.aside(a.plan.ID, n)
	there, err := disk.Exists(aside)
	if err != nil || !there {
		return err
	}
	return a.mover.discard(aside, s.Path, s.To)
}

// removeDir removes an empty directory and its parents that became empty.
func (a *applier) removeDir(p string) {
	for ; p != "." && !a.needed(p); p = wire.ParentDir(p) {
		dir, err := disk.OpenDir(a.mover.scanner.Root, wire.ParentDir(p))
		if err != nil {
			return
		}
		err = unix.Unlinkat(dir, path.Base(p), unix.AT_REMOVEDIR)
		unix.Close(dir)
		if err != nil {
			return // not empty: the user has something there
		}
	}
}

// remove moves a file out of the tree if its content is what the plan expected.
func (a *applier) remove(ctx context.Context, n int, s Step) error {
	aside := a.mover.aside(a.plan.ID, n)
	p := string(s.Path)
	dir, err := disk.OpenDir(a.mover.scanner.Root, wire.ParentDir(p))
	if err != nil {
		if disk.IsGone(err) {
			return nil
		}
		return err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	moved, err := disk.Exists(aside)
	if err != nil {
		return err
	}
	if !moved {
		st, err := disk.Lstat(dir, name)
		if err != nil {
			if disk.IsGone(err) {
				return nil
			}
			return err
		}
		if !st.IsRegular() && !st.IsSymlink() {
			a.conflict(s.Path, "became a "+st.Kind())
			return nil
		}
		if err := disk.RenameAt(dir, name, unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE); err != nil {
			if disk.IsGone(err) {
				return nil
			}
			return err
		}
		a.mover.crash("apply.moved")
	}
	got, other, err := a.mover.store.EntryAt(unix.AT_FDCWD, aside, s.From)
	if err != nil {
		return err
	}
	if !other && got == s.From {
		a.seen[strconv.Itoa(n)] = got
		a.removeDir(wire.ParentDir(p))
		return nil
	}
	a.conflict(s.Path, "was changed while it was being removed")
	err = disk.RenameAt(unix.AT_FDCWD, aside, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return a.keep(ctx, n, s.Path, got) // an even newer file is at the path, and stays there
	}
	return err
}

// place puts a staged file at its path by an atomic exchange, compares what it displaced
// with what the plan expected there, and merges or gives way if the user wrote in between.
func (a *applier) place(ctx context.Context, n int, s Step) error {
	aside := a.mover.aside(a.plan.ID, n)
	staged, err := disk.Exists(aside)
	if err != nil {
		return err
	}
	if !staged {
		return nil // an earlier try put it in place; what the user did since stays
	}
	p := string(s.Path)
	dir, err := disk.MakeDirs(a.mover.scanner.Root, wire.ParentDir(p))
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			a.conflict(s.Path, "its directory is a file or a link now")
			return a.mover.discard(aside, s.Path, s.To)
		}
		return err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	mine, other, err := a.mover.store.EntryAt(unix.AT_FDCWD, aside, s.To)
	if err != nil {
		return err
	}
	if !other && mine == s.To {
		cur, occupied, err := a.mover.store.EntryAt(dir, name, s.From, s.To)
		switch {
		case err != nil:
			return err
		case occupied:
			a.conflict(s.Path, "is a directory or no file now")
			return a.mover.discard(aside, s.Path, s.To)
		case cur == s.To:
			return a.mover.discard(aside, s.Path, s.To)
		}
		if !s.From.Exists() {
			err := disk.RenameAt(unix.AT_FDCWD, aside, dir, name, unix.RENAME_NOREPLACE)
			if errors.Is(err, unix.EEXIST) {
				a.conflict(s.Path, "was made meanwhile")
				return a.mover.discard(aside, s.Path, s.To)
			}
			return err
		}
		switch err := disk.RenameAt(unix.AT_FDCWD, aside, dir, name, unix.RENAME_EXCHANGE); {
		case disk.IsGone(err):
			a.conflict(s.Path, "was removed meanwhile")
			return a.mover.discard(aside, s.Path, s.To)
		case err != nil:
			return err
		}
		a.mover.crash("apply.exchanged")
	}
	return a.displaced(ctx, n, s, dir, name)
}

// displaced compares the file that an exchange moved aside with what the plan expected.
func (a *applier) displaced(ctx context.Context, n int, s Step, dir int, name string) error {
	aside := a.mover.aside(a.plan.ID, n)
	got, other, err := a.mover.store.EntryAt(unix.AT_FDCWD, aside, s.From)
	if err != nil {
		return err
	}
	if !other && got == s.From {
		a.seen[strconv.Itoa(n)] = got
		return nil
	}
	if !other {
		done, ok, err := a.mover.catchUp(ctx, s.From, s.To, aside, a.mover.PlanDir(a.plan.ID, fmt.Sprintf("caught-%d", n)), dir, name)
		if err != nil {
			return err
		}
		if ok {
			a.seen[strconv.Itoa(n)] = done
			return nil
		}
		// The user wrote in between. Their version is stored before anything else.
		if got, err = a.mover.store.StoreFile(ctx, aside); err != nil {
			return err
		}
		merged, ok, err := a.mover.store.MergeAt(ctx, string(s.Path), s.From, got, s.To)
		if err != nil {
			return err
		}
		if ok {
			// The merge contains every line of their version, but is a different file, so
			// that version is kept as well.
			if err := a.mover.keepEntry(ctx, fmt.Sprintf("%s-%d", a.plan.ID, n), s.Path, got); err != nil {
				return err
			}
			done, err := a.mover.exchangeMerged(ctx, s.Path, dir, s.To, merged)
			if err != nil {
				return err
			}
			if done {
				a.seen[strconv.Itoa(n)] = got
				return nil
			}
		}
	}
	a.conflict(s.Path, "was changed in the very moment")
	if err := disk.RenameAt(unix.AT_FDCWD, aside, dir, name, unix.RENAME_EXCHANGE); err != nil {
		if disk.IsGone(err) { // it was removed after ours was put in place, which is newer
			return a.keep(ctx, n, s.Path, got)
		}
		return err
	}
	back, other, err := a.mover.store.EntryAt(unix.AT_FDCWD, aside, s.To)
	if err != nil {
		return err
	}
	if !other && back == s.To {
		return a.mover.discard(aside, s.Path, s.To)
	}
	// The exchange displaced something newer than what was put back, so it goes back to its
	// path.
	if err := disk.RenameAt(unix.AT_FDCWD, aside, dir, name, unix.RENAME_EXCHANGE); err != nil && !disk.IsGone(err) {
		return err
	}
	return a.keep(ctx, n, s.Path, got)
}

// keep keeps a version of the user's that is no longer in the tree. What is not a file or
// link goes to the trash whole.
func (a *applier) keep(ctx context.Context, n int, p wire.Path, en gitstore.Entry) error {
	aside := a.mover.aside(a.plan.ID, n)
	st, err := disk.Lstat(unix.AT_FDCWD, aside)
	if err != nil {
		return err
	}
	if !st.IsRegular() && !st.IsSymlink() {
		_, err := a.mover.ToTrash(unix.AT_FDCWD, aside, TrashEntry{Trashed: wire.Trashed{Path: p}, Op: "merge"})
		return err
	}
	a.seen[strconv.Itoa(n)] = en
	_, err = a.mover.keepVersion(ctx, fmt.Sprintf("%s-%d", a.plan.ID, n), p, aside)
	return err
}

// exchangeMerged puts merged at a path at which want, which is held elsewhere, is expected.
// It returns false if the user wrote again in between; then everything is as before.
func (mv *Mover) exchangeMerged(ctx context.Context, p wire.Path, dir int, want, merged gitstore.Entry) (bool, error) {
	name := path.Base(string(p))
	if cur, _, err := mv.store.EntryAt(dir, name, merged); err != nil || cur == merged {
		return err == nil, err
	}
	tmp := mv.store.Work("incoming-" + Token())
	if err := mv.store.Materialize(ctx, tmp, merged, true); err != nil {
		return false, errors.Join(err, disk.RemoveIfThere(tmp))
	}
	t, err := mv.Intend(tmp, TrashEntry{Trashed: wire.Trashed{Path: p}, Op: "merge", New: merged}, nil)
	if err != nil {
		return false, errors.Join(err, disk.RemoveIfThere(tmp))
	}
	took, was, err := mv.Swap(t, dir, name, false)
	if err != nil {
		return false, err
	}
	if took && was == want {
		return true, mv.dropEntry(t, want)
	}
	return false, mv.TakeBack(t, dir, name)
}
