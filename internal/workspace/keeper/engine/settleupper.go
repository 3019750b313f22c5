package engine

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// slack is how far the clock that files are stamped with may lie behind ours.
const slack = 2 * time.Second

// SettleUpper makes durable what a task has written since it was last asked. A
// task that is resumed goes on with its upper as it stands and is not told to
// write again what it was told is written, so that must survive the machine.
func (e *Engine) SettleUpper(ctx context.Context, req wire.UpperRequest) error {
	const op = "keeper.SettleUpper"
	if err := wire.CheckPath(req.Upper, false); err != nil {
		return fault.New(op, fault.Invalid, "", fmt.Errorf("upper %q %w", wire.Short(req.Upper), err))
	}
	uppers, err := unix.Open(e.opts.Uppers, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fault.Wrap(op, &os.PathError{Op: "open", Path: e.opts.Uppers, Err: err})
	}
	defer unix.Close(uppers)
	root, err := disk.OpenDir(uppers, req.Upper)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer unix.Close(root)
	e.settling.Lock()
	defer e.settling.Unlock()
	began := time.Now()
	paths, all, err := e.writtenSince(ctx, root, e.settledAt[req.Upper])
	if err != nil {
		return fault.Wrap(op, err)
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
		e.settledAt[req.Upper] = began
	}
	return fault.Wrap(op, err)
}

// forgetUpper is called when an upper is dropped.
func (e *Engine) forgetUpper(id string) {
	e.settling.Lock()
	defer e.settling.Unlock()
	delete(e.settledAt, id+"/upper")
}

// writtenSince lists the files and directories that were changed. all says that
// there are too many, or that they lie too deep, to be named one by one.
func (e *Engine) writtenSince(ctx context.Context, root int, since time.Time) (paths []string, all bool, err error) {
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
			return nil, true, nil //nolint:nilerr // what can't be opened is synced with everything
		}
		f := os.NewFile(uintptr(fd), dir)
		names, err := f.Readdirnames(e.opts.Limits.WalkEntries)
		if err != nil && len(names) > 0 || len(names) == e.opts.Limits.WalkEntries {
			return nil, true, f.Close()
		}
		changed := func(st unix.Stat_t) bool { return !time.Unix(st.Ctim.Unix()).Before(since.Add(-slack)) }
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && changed(st) {
			paths = append(paths, dir)
		}
		for _, name := range names {
			if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // it is gone
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
		if seen += len(names); len(paths) > disk.SyncEachUpTo || seen > e.opts.Limits.WalkEntries {
			return nil, true, nil
		}
	}
	return paths, false, nil
}
