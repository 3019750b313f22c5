package uppers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Uppers are the folders in which boxes of tasks write.
type Uppers struct {
	dir     string
	entries int // how many names of a folder are looked at

	settling  sync.Mutex           // settles one upper at a time; guards what follows
	settledAt map[string]time.Time // by upper: everything written before this time is durable
}

// New returns the Uppers of a folder; at most entries names of each directory are looked
// at.
func New(dir string, entries int) *Uppers {
	return &Uppers{dir: dir, entries: entries, settledAt: map[string]time.Time{}}
}

// Open opens an upper. The caller closes it.
func (up *Uppers) Open(upper string) (int, error) {
	if err := wire.CheckPath(upper, false); err != nil {
		return -1, fault.New("", fault.Invalid, "", fmt.Errorf("upper %q %w", wire.Short(upper), err))
	}
	dirs, err := unix.Open(up.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: up.dir, Err: err}
	}
	defer unix.Close(dirs)
	return disk.OpenDir(dirs, upper)
}

// slack is how far the clock that stamps files may be behind ours.
const slack = 2 * time.Second

// Settle makes durable what a task has written since the last call. A task that is resumed
// continues with its upper as it is, and does not write again what it was told is written,
// so that must survive a crash of the machine. It reports whether the upper may change any
// of paths, or anything beneath them.
func (up *Uppers) Settle(ctx context.Context, upper string, paths []wire.Path) (touched bool, err error) {
	if len(paths) > wire.MaxFilled {
		return false, fault.New("", fault.Exhausted, "", fmt.Errorf("no more than %d paths are looked for", wire.MaxFilled))
	}
	for _, p := range paths {
		if err := wire.CheckPath(string(p), false); err != nil {
			return false, fault.New("", fault.Invalid, "", fmt.Errorf("path %q %w", wire.Short(string(p)), err))
		}
	}
	root, err := up.Open(upper)
	if err != nil {
		return false, err
	}
	defer unix.Close(root)
	if err := up.settle(ctx, upper, root); err != nil {
		return false, err
	}
	return slices.ContainsFunc(paths, func(p wire.Path) bool { return touches(root, string(p)) }), nil
}

// touches reports whether an upper may change a path of its tree, or what is beneath it:
// whether anything stands there, even if it is only a folder, whether it hides something at
// one of the path's parents, or whether that can't be seen.
func touches(root int, p string) bool {
	for i := range len(p) + 1 {
		if i < len(p) && p[i] != '/' {
			continue
		}
		fd, err := disk.OpenDir(root, p[:i])
		if errors.Is(err, unix.ENOENT) {
			return false
		}
		if err != nil {
			return true // a file, a link, the mark of a removal, or closed
		}
		hides := disk.Marked(fd, disk.Opaque)
		_ = unix.Close(fd)
		if hides {
			return true
		}
	}
	return true
}

func (up *Uppers) settle(ctx context.Context, upper string, root int) error {
	up.settling.Lock()
	defer up.settling.Unlock()
	began := time.Now()
	paths, all, err := up.writtenSince(ctx, root, up.settledAt[upper])
	if err != nil {
		return err
	}
	if all {
		err = unix.Syncfs(root)
	} else {
		var g errgroup.Group
		g.SetLimit(8)
		for _, p := range paths {
			g.Go(func() error { return disk.SyncBeneath(root, p) })
		}
		err = g.Wait()
	}
	if err == nil {
		up.settledAt[upper] = began
	}
	return err
}

// Forget is called when an upper is dropped.
func (up *Uppers) Forget(id string) {
	up.settling.Lock()
	defer up.settling.Unlock()
	delete(up.settledAt, id+"/upper")
}

// writtenSince lists the files and directories that were changed since a time. all says
// that they are too many, or too deep, to be listed.
func (up *Uppers) writtenSince(ctx context.Context, root int, since time.Time) (paths []string, all bool, err error) {
	seen := 0
	for todo := []string{"."}; len(todo) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		fd, err := disk.OpenDir(root, dir)
		if err != nil {
			if disk.IsGone(err) {
				continue
			}
			return nil, true, nil //nolint:nilerr // what can't be opened is synced with the whole file system
		}
		f := os.NewFile(uintptr(fd), dir)
		names, err := f.Readdirnames(up.entries)
		if err != nil && len(names) > 0 || len(names) == up.entries {
			return nil, true, f.Close()
		}
		changed := func(st unix.Stat_t) bool { return !time.Unix(st.Ctim.Unix()).Before(since.Add(-slack)) }
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && changed(st) {
			paths = append(paths, dir)
		}
		for _, name := range names {
			if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // it was removed
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				todo = append(todo, path.Join(dir, name))
			case unix.S_IFREG:
				if changed(st) {
					paths = append(paths, path.Join(dir, name))
				}
			}
		}
		if err := f.Close(); err != nil {
			return nil, false, err
		}
		if seen += len(names); len(paths) > disk.SyncEachUpTo || seen > up.entries {
			return nil, true, nil
		}
	}
	return paths, false, nil
}

// Filled says which of a task's folders, in what its boxes wrote, contain anything. What is
// not a folder, such as a link, contains nothing.
func (up *Uppers) Filled(ctx context.Context, req wire.FilledRequest) (wire.FilledReply, error) {
	const op = "keeper.Filled"
	if len(req.Folders) > wire.MaxFilled {
		return wire.FilledReply{}, fault.New(op, fault.Exhausted, "", fmt.Errorf("no more than %d folders are looked at", wire.MaxFilled))
	}
	dirs, err := unix.Open(up.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wire.FilledReply{}, fault.Wrap(op, &os.PathError{Op: "open", Path: up.dir, Err: err})
	}
	defer unix.Close(dirs)
	var reply wire.FilledReply
	for i, folder := range req.Folders {
		at := path.Join(req.ID, string(folder))
		if len(at) > wire.MaxTreePath {
			continue // nothing can be made at a path that is too long
		}
		if err := wire.CheckPath(at, false); err != nil {
			return wire.FilledReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("folder %q %w", wire.Short(at), err))
		}
		if err := ctx.Err(); err != nil {
			return wire.FilledReply{}, fault.Wrap(op, err)
		}
		holds, err := holdsAny(dirs, at)
		if err != nil {
			return wire.FilledReply{}, fault.Wrap(op, err)
		}
		if holds {
			reply.Filled = append(reply.Filled, i)
		}
	}
	return reply, nil
}

// holdsAny reports whether a path is a folder that contains anything.
func holdsAny(uppers int, at string) (bool, error) {
	fd, err := disk.OpenDir(uppers, at)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return false, nil
	case errors.Is(err, unix.EACCES):
		return true, nil // somebody closed it, so it counts as filled
	case err != nil:
		return false, err
	}
	dir := os.NewFile(uintptr(fd), at)
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) > 0, err
}
