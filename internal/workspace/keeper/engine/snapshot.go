package engine

import (
	"bytes"
	"context"
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
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Snapshots are immutable checkouts that boxes use as the lower of an overlay.
// What two snapshots have in common is hard-linked between them, never with the
// live tree. They can be made again at any time, so nothing is synced; instead
// a snapshot's mark names the boot of the machine that wrote it, and after
// another boot it is compared with its commit before it is trusted.

func (e *Engine) snapshotMark(commit string) string {
	return filepath.Join(e.opts.Snapshots, "."+commit+".ok")
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Snapshot makes sure that a commit is checked out.
func (e *Engine) Snapshot(ctx context.Context, commit string) (wire.SnapshotReply, error) {
	const op = "keeper.Snapshot"
	e.snapMu.Lock()
	defer e.snapMu.Unlock()
	id, err := e.store.Resolve(ctx, commit)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	tree, err := e.treeish(ctx, id, "HEAD")
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	reply := wire.SnapshotReply{Commit: id, Tree: tree, Dir: id}
	want, err := e.store.ReadTree(ctx, tree, false)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	boot, err := bootID()
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	ok, err := e.snapshotHolds(id, want, boot)
	if err != nil || ok {
		return reply, fault.Wrap(op, err)
	}
	return reply, fault.Wrap(op, e.buildSnapshot(ctx, id, want, boot))
}

// snapshotHolds reports whether a snapshot is there and whole.
func (e *Engine) snapshotHolds(id string, want gitstore.Tree, boot string) (bool, error) {
	mark, err := os.ReadFile(e.snapshotMark(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || string(mark) == boot {
		return err == nil, err
	}
	dir, err := unix.Open(filepath.Join(e.opts.Snapshots, id), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil //nolint:nilerr // not there: it is built
	}
	defer unix.Close(dir)
	for p, en := range want {
		if en.Mode == wire.ModeEmptyDir {
			continue
		}
		sub, err := disk.OpenDir(dir, wire.ParentDir(p))
		if err != nil {
			return false, nil //nolint:nilerr // damaged: it is built anew
		}
		got, _, err := e.store.EntryAt(sub, path.Base(p), en)
		unix.Close(sub)
		if err != nil || got != en {
			return false, nil //nolint:nilerr // likewise
		}
	}
	return true, os.WriteFile(e.snapshotMark(id), []byte(boot), 0o644)
}

func (e *Engine) buildSnapshot(ctx context.Context, id string, want gitstore.Tree, boot string) error {
	final, tmp := filepath.Join(e.opts.Snapshots, id), filepath.Join(e.opts.Snapshots, ".tmp-"+id)
	if err := errors.Join(disk.RemoveTree(tmp), disk.RemoveIfThere(e.snapshotMark(id)), disk.RemoveTree(final)); err != nil {
		return err
	}
	like, likeTree, err := e.newestSnapshot(ctx, boot)
	if err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	b := snapshotBuilder{e: e, tmp: tmp, like: like, likeTree: likeTree, dst: -1, src: -1}
	err = b.build(ctx, want)
	b.leave()
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	e.crash("snapshot.built")
	return os.WriteFile(e.snapshotMark(id), []byte(boot), 0o644)
}

// snapshotBuilder fills a snapshot directory by directory, with the directory
// and the one to link from held open: ten thousand links are cheap that way.
type snapshotBuilder struct {
	e         *Engine
	tmp, like string
	likeTree  gitstore.Tree
	dir       string
	dst, src  int
}

func (b *snapshotBuilder) leave() {
	for _, fd := range []int{b.dst, b.src} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	b.dst, b.src = -1, -1
}

func (b *snapshotBuilder) enter(dir string) (err error) {
	if b.dst >= 0 && b.dir == dir {
		return nil
	}
	b.leave()
	name := filepath.Join(b.tmp, filepath.FromSlash(dir))
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	if b.dst, err = unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	b.dir = dir
	if b.like != "" {
		if fd, err := unix.Open(filepath.Join(b.like, filepath.FromSlash(dir)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			b.src = fd
		}
	}
	return nil
}

func (b *snapshotBuilder) build(ctx context.Context, want gitstore.Tree) error {
	paths := make([]string, 0, len(want))
	for p := range want {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, gitstore.ComparePaths)
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		en := want[p]
		if en.Mode == wire.ModeEmptyDir {
			if err := b.enter(p); err != nil {
				return err
			}
			continue
		}
		if err := b.enter(wire.ParentDir(p)); err != nil {
			return err
		}
		name := path.Base(p)
		if b.src >= 0 && b.likeTree[p] == en && unix.Linkat(b.src, name, b.dst, name, 0) == nil {
			continue
		}
		file := filepath.Join(b.tmp, filepath.FromSlash(p))
		if err := b.e.moves.MaterializeAt(ctx, file, en, wire.Path(p), false); err != nil {
			return err
		}
	}
	return nil
}

// newestSnapshot returns a whole snapshot to link from, or "".
func (e *Engine) newestSnapshot(ctx context.Context, boot string) (string, gitstore.Tree, error) {
	marks, err := filepath.Glob(filepath.Join(e.opts.Snapshots, ".*.ok"))
	if err != nil {
		return "", nil, err
	}
	best, when := "", int64(-1)
	for _, m := range marks {
		st, err := os.Lstat(m)
		if err != nil {
			continue // removed meanwhile
		}
		if b, err := os.ReadFile(m); err != nil || !bytes.Equal(b, []byte(boot)) {
			continue // of another boot: not proven
		}
		if t := st.ModTime().UnixNano(); t > when {
			best, when = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m), "."), ".ok"), t
		}
	}
	if best == "" {
		return "", nil, nil
	}
	tree, err := e.treeish(ctx, best, "HEAD")
	if fault.Is(err, fault.NotFound) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	t, err := e.store.ReadTree(ctx, tree, false)
	return filepath.Join(e.opts.Snapshots, best), t, err
}

// ReleaseSnapshots removes every snapshot but those of the commits to keep.
func (e *Engine) ReleaseSnapshots(keep []string) error {
	const op = "keeper.ReleaseSnapshots"
	e.snapMu.Lock()
	defer e.snapMu.Unlock()
	entries, err := os.ReadDir(e.opts.Snapshots)
	if err != nil {
		return fault.Wrap(op, err)
	}
	for _, en := range entries {
		name := en.Name()
		commit := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, ".tmp-"), "."), ".ok")
		if !gitstore.IsHex(commit) || len(commit) != 40 || (slices.Contains(keep, commit) && !strings.HasPrefix(name, ".tmp-")) {
			continue
		}
		if err := errors.Join(disk.RemoveIfThere(e.snapshotMark(commit)), disk.RemoveTree(filepath.Join(e.opts.Snapshots, name))); err != nil {
			return fault.Wrap(op, fmt.Errorf("remove snapshot %s: %w", commit, err))
		}
	}
	return nil
}
