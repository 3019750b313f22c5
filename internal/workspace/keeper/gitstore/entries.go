package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Materialize writes an entry's content as a file or link that does not exist yet.
func (s *Store) Materialize(ctx context.Context, name string, en Entry, sync bool) error {
	if en.Mode == wire.ModeSymlink {
		target, err := s.Blob(ctx, en.ID, wire.MaxPath)
		if err != nil {
			return err
		}
		return os.Symlink(string(target), name)
	}
	perm := fs.FileMode(0o644)
	if en.Mode == wire.ModeExec {
		perm = 0o755
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, perm)
	if err != nil {
		return err
	}
	_, err = s.ReadContent(ctx, en, 0, -1, f)
	err = errors.Join(err, f.Chmod(perm))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

// EntryAt says what a name in an open directory is now: an entry, none, or other for a
// directory or something else that can't be captured. A large file is identified sooner if
// it is one of likely.
func (s *Store) EntryAt(dirfd int, name string, likely ...Entry) (en Entry, other bool, err error) {
	for range 100 {
		r, st, err := disk.OpenContent(dirfd, name, -1)
		if err != nil {
			if disk.IsGone(err) {
				return None, false, nil
			}
			if errors.Is(err, disk.ErrGone) { // a directory, a device, or changed while it was read
				if st, lerr := disk.Lstat(dirfd, name); lerr == nil && !st.IsRegular() && !st.IsSymlink() {
					return None, true, nil
				}
				continue
			}
			return None, false, err
		}
		en, is, herr := s.IsOneOf(r, st, likely)
		if herr == nil && !is && s.Chunked(st) && len(likely) > 0 {
			if likely, err = nil, r.Close(); err != nil {
				return None, false, err
			}
			continue // the file is read again from its beginning
		}
		if herr == nil && !is {
			en, herr = s.HashEntry(r, st)
		}
		if err := r.Close(); err != nil {
			return None, false, err
		}
		if errors.Is(herr, disk.ErrGone) {
			continue // it is being written to
		}
		return en, false, herr
	}
	return None, false, fault.New("", fault.Unavailable, "Try again when nothing writes to it.", fmt.Errorf("%q never stands still", name))
}

// window passes on a range of what is written to it.
type window struct {
	w          io.Writer
	skip, left int64
	all        bool
}

func (v *window) Write(p []byte) (int, error) {
	n := len(p)
	cut := min(v.skip, int64(len(p)))
	v.skip -= cut
	p = p[cut:]
	if !v.all {
		p = p[:min(v.left, int64(len(p)))]
		v.left -= int64(len(p))
	}
	if len(p) > 0 {
		if _, err := v.w.Write(p); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// StoreEntryAt stores a file of the live tree.
func (s *Store) StoreEntryAt(ctx context.Context, dirfd int, name string) (Entry, error) {
	var en Entry
	ids, err := s.Write(ctx, []objects.Object{s.ContentObject(ctx, &en, nil, func() (io.ReadCloser, disk.Stat, error) {
		r, st, err := disk.OpenContent(dirfd, name, -1)
		if disk.IsGone(err) {
			err = disk.ErrGone
		}
		return r, st, err
	})})
	if err != nil || ids[0] == "" {
		return None, err
	}
	en.ID = ids[0]
	return en, nil
}

// Directories returns every directory that holds one of the paths.
func Directories[T any](paths map[string]T) map[string]bool {
	dirs := map[string]bool{}
	for p := range paths {
		for d := wire.ParentDir(p); d != "." && !dirs[d]; d = wire.ParentDir(d) {
			dirs[d] = true
		}
	}
	return dirs
}
