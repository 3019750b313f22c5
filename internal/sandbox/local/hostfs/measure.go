package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// Size is the size of a tree.
type Size struct{ Bytes, Inodes int64 }

// ErrMoved says that directories were moved while they were being measured, so
// that what was counted is less than what is there.
var ErrMoved = errors.New("its folders were moved while they were being measured")

// Tally adds up the sizes of trees. It opens no file and follows no link; it holds at most
// maxOpen descriptors, however deep a tree is. It also reads directories that their modes
// close, and leaves the modes as they are.
type Tally struct {
	Size
	// Limit ends the counting when more inodes were found; 0 means no limit.
	Limit int64

	seen map[ID]bool // files with several names, which are counted once
}

// maxOpen limits how many directories are held open. Those further up are closed, and
// opened again through ".." if that still leads to them.
const maxOpen = 64

// level is a directory on the path from the root to the current one.
type level struct {
	dir  *os.File // nil while it is closed for want of descriptors
	id   ID
	subs []string // still to be visited
}

// Add counts what is beneath an open directory. What is made or removed meanwhile may be
// counted or not.
func (t *Tally) Add(ctx context.Context, d *Dir) error {
	if t.seen == nil {
		t.seen = map[ID]bool{}
	}
	top, err := t.enter(ctx, d.fd(), ".")
	if err != nil || top == nil {
		return err
	}
	way := []*level{top}
	defer func() {
		for _, l := range way {
			if l.dir != nil {
				_ = l.dir.Close()
			}
		}
	}()
	for len(way) > 0 && !t.full() {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := way[len(way)-1]
		if n := len(last.subs); n > 0 {
			name := last.subs[n-1]
			last.subs = last.subs[:n-1]
			next, err := t.enter(ctx, int(last.dir.Fd()), name)
			if err != nil {
				return err
			}
			if next == nil {
				continue
			}
			way = append(way, next)
			if i := len(way) - 1 - maxOpen; i >= 0 {
				if defence.Off(defence.MeasureDeep) {
					return fmt.Errorf("folders are nested deeper than %d", maxOpen)
				}
				_ = way[i].dir.Close()
				way[i].dir = nil
			}
			continue
		}
		way = way[:len(way)-1]
		if len(way) > 0 && way[len(way)-1].dir == nil {
			err = reopen(last.dir, way[len(way)-1])
		}
		if err = errors.Join(err, last.dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tally) full() bool { return t.Limit > 0 && t.Inodes > t.Limit }

// reopen opens the parent of an open directory, which must be l's directory.
func reopen(dir *os.File, l *level) error {
	f, err := readable(int(dir.Fd()), "..")
	if err != nil {
		return ErrMoved
	}
	if id, err := Identify(f); err != nil || id != l.id {
		_ = f.Close()
		return ErrMoved
	}
	l.dir = f
	return nil
}

// enter counts what is in one directory and lists its directories. It returns nil if the
// directory was removed or replaced.
func (t *Tally) enter(ctx context.Context, at int, name string) (*level, error) {
	f, err := readable(at, name)
	switch {
	case err == nil:
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return nil, nil // it changed meanwhile
	default:
		return nil, err
	}
	l := &level{dir: f}
	if l.id, err = Identify(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for {
		names, err := f.Readdirnames(batch)
		for _, n := range names {
			t.count(l, n)
		}
		if err != nil || len(names) == 0 || t.full() || ctx.Err() != nil {
			return l, nil // the end, which is also what a removed directory gives
		}
	}
}

func (t *Tally) count(l *level, name string) {
	var st unix.Stat_t
	err := unix.Fstatat(int(l.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EACCES { // the directory may be listed, but not searched
		_ = withAccess(int(l.dir.Fd()), func() error {
			err = unix.Fstatat(int(l.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
			return nil
		})
	}
	if err != nil {
		return // gone meanwhile
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if st.Nlink > 1 && !isDir {
		id := ID{uint64(st.Dev), st.Ino}
		if t.seen[id] {
			return
		}
		t.seen[id] = true
	}
	t.Inodes++
	t.Bytes += st.Blocks * 512
	if isDir {
		l.subs = append(l.subs, name)
	}
}

// readable opens a directory for listing, whatever its mode, if this process's user owns
// it.
func readable(at int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err == unix.EACCES && !defence.Off(defence.MeasureDeep) {
		err = withAccess(at, func() error {
			path, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(path)
			return withAccess(path, func() (err error) {
				fd, err = unix.Openat(path, ".", flags, 0)
				return err
			})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open %.100q: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// withAccess calls f while this process's user has all rights to an open directory, and
// restores its mode afterwards.
func withAccess(fd int, f func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := st.Mode & 0o7777
	if mode&0o700 == 0o700 {
		return f()
	}
	if err := unix.Chmod(proc(fd), mode|0o700); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, unix.Chmod(proc(fd), mode))
}
