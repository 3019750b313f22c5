package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// LinkReader reads the target of a link.
type LinkReader struct{ *strings.Reader }

// Close implements io.Closer.
func (LinkReader) Close() error { return nil }

// OpenContent opens the content of a path beneath a root: a file's bytes, at most max (when
// max >= 0), or a link's target. With a root of AT_FDCWD the path is a file of the engine's
// own.
func OpenContent(rootfd int, p string, max int64) (io.ReadCloser, Stat, error) {
	var dir int
	var err error
	if rootfd == unix.AT_FDCWD { // a file of the engine's own
		dir, err = unix.Open(path.Dir(p), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	} else {
		dir, err = OpenDir(rootfd, wire.ParentDir(p))
	}
	if err != nil {
		return nil, Stat{}, err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	st, err := Lstat(dir, name)
	if err != nil {
		return nil, Stat{}, err
	}
	if st.IsSymlink() {
		target, err := ReadlinkAt(dir, name)
		if errors.Is(err, unix.EINVAL) {
			err = ErrGone
		}
		return LinkReader{strings.NewReader(string(target))}, st, err
	}
	fd, err := OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if rootfd == unix.AT_FDCWD && IsDenied(err) && st.IsRegular() {
		// Moved aside with a mode that keeps its owner out: it is ours to open.
		if err = unix.Fchmodat(dir, name, st.Mode&0o7777|0o400, 0); err == nil {
			fd, err = OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		return nil, Stat{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	var ust unix.Stat_t
	if err := unix.Fstat(fd, &ust); err != nil {
		return nil, Stat{}, errors.Join(err, f.Close())
	}
	if st = StatOf(&ust); !st.IsRegular() {
		return nil, Stat{}, errors.Join(ErrGone, f.Close())
	}
	if max >= 0 && st.Size > max {
		return nil, Stat{}, errors.Join(fault.New("", fault.Exhausted, "", fmt.Errorf("%q has %d bytes; at most %d are taken", p, st.Size, max)), f.Close())
	}
	return f, st, nil
}

// Unwritten reports whether nobody has a file open for writing, by a mapping of it neither:
// a lease for reading is only to be had then. Where there are no leases, nobody knows.
func Unwritten(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

// Unreached reports whether no program can write to a file any more that only the keeper
// finds by its name: nobody has it open, if only for reading, as /proc opens it anew, and it
// has no other hard link. Where there are no leases, nobody knows. A link is not written to.
func Unreached(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return true, nil
	}
	if err != nil {
		return false, IgnoreUnreachable(err)
	}
	defer f.Close() // which gives the lease back
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 {
		return false, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil, nil //nolint:nilerr // that is what is asked
}

// ErrGone says that a file vanished, or changed while it was read.
var ErrGone = errors.New("the file is gone")
