package keeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Everything the engine opens in a tree it opens through these: the kernel
// resolves the path beneath the tree's root and refuses symbolic links, so a
// directory swapped for a link between look and use leads nowhere.

// openBeneath opens rel beneath the directory dirfd, following no link at all.
func openBeneath(dirfd int, rel string, flags int, mode uint32) (int, error) {
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if defence.Off(defence.KeeperBeneath) {
		how.Flags &^= unix.O_NOFOLLOW
		how.Resolve = 0
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dirfd, rel, how)
		if (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < 100 {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: rel, Err: err}
		}
		return fd, nil
	}
}

// openDir opens a directory beneath dirfd.
func openDir(dirfd int, rel string) (int, error) {
	return openBeneath(dirfd, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// makeDirs makes rel and its parents beneath dirfd and opens it. A part that is
// not a directory is an error.
func makeDirs(dirfd int, rel string) (int, error) {
	at := rel // the deepest part that is there
	fd, err := openDir(dirfd, at)
	for errors.Is(err, unix.ENOENT) && at != "." {
		at = wire.ParentDir(at)
		fd, err = openDir(dirfd, at)
	}
	if err != nil || at == rel {
		return fd, err
	}
	missing := rel
	if at != "." {
		missing = rel[len(at)+1:]
	}
	for name := range strings.SplitSeq(missing, "/") {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, errors.Join(&os.PathError{Op: "mkdir", Path: rel, Err: err}, unix.Close(fd))
		}
		next, err := openDir(fd, name)
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// fileStat is what tells one state of a file from another.
type fileStat struct {
	Ino   uint64
	Size  int64
	Mtime int64 // ns
	Ctime int64 // ns
	Mode  uint32
}

func toStat(st *unix.Stat_t) fileStat {
	return fileStat{Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Mode: st.Mode}
}

func lstatAt(dirfd int, name string) (fileStat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileStat{}, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return toStat(&st), nil
}

// statOf is the state of what a descriptor has open.
func statOf(fd int) (fileStat, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return toStat(&st), err
}

// dirEntry is a name in a directory, and what the directory says it is (unix.DT_*).
type dirEntry struct {
	name string
	kind uint8
}

// readNames reads the names in an open directory, and no more than one beyond
// limit. One that goes away meanwhile has no more of them.
func readNames(fd, limit int) ([]dirEntry, error) {
	const head = 19 // of a record: inode, offset, length, kind; then the name
	var out []dirEntry
	buf := make([]byte, 32<<10)
	for len(out) <= limit {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return nil, os.NewSyscallError("getdents", err)
		}
		if n <= 0 {
			break
		}
		for rec := buf[:n]; len(rec) >= head; {
			size := int(binary.NativeEndian.Uint16(rec[16:]))
			if size < head || size > len(rec) {
				return nil, errors.New("the file system answers records that are none")
			}
			name, _, _ := bytes.Cut(rec[head:size], []byte{0})
			if s := string(name); s != "." && s != ".." {
				out = append(out, dirEntry{s, rec[18]})
			}
			rec = rec[size:]
		}
	}
	return out, nil
}

// modTime returns the modification time.
func (s fileStat) modTime() time.Time { return time.Unix(0, s.Mtime) }

func (s fileStat) isRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }
func (s fileStat) isSymlink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }
func (s fileStat) isDir() bool     { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// gitMode returns the mode git keeps of a file: whether it is a link, and
// whether its owner may execute it.
func (s fileStat) gitMode() wire.Mode {
	switch {
	case s.isSymlink():
		return wire.ModeSymlink
	case s.isDir():
		return wire.ModeEmptyDir
	case s.Mode&0o100 != 0:
		return wire.ModeExec
	}
	return wire.ModeFile
}

func (s fileStat) kind() string {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "device"
	}
	return "unknown"
}

func readlinkAt(dirfd int, name string) ([]byte, error) {
	buf := make([]byte, wire.MaxPath+1)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return nil, &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	if n > wire.MaxPath {
		return nil, fmt.Errorf("link %q is longer than %d bytes", name, wire.MaxPath)
	}
	return buf[:n], nil
}

// syncDirAt makes the names in a directory durable.
func syncDirAt(dirfd int, rel string) error {
	fd, err := openDir(dirfd, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isDenied reports that permissions keep even the owner out. A disk that is
// mounted read-only is nothing about a path, and no reason to leave it as it is.
func isDenied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

// isGone reports that a path, or a directory on the way to it, is not there
// (or is no longer what it was).
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}
