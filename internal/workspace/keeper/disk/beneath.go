package disk

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

// All files in a tree are opened with these functions: the kernel resolves the path beneath
// the tree's root and refuses symbolic links, so replacing a directory by a link between
// check and use has no effect.

// OpenBeneath opens rel beneath the directory dirfd, following no link at all.
func OpenBeneath(dirfd int, rel string, flags int, mode uint32) (int, error) {
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

// OpenDir opens a directory beneath dirfd.
func OpenDir(dirfd int, rel string) (int, error) {
	return OpenBeneath(dirfd, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// MakeDirs makes rel and its parents beneath dirfd and opens it. A part that is
// not a directory is an error.
func MakeDirs(dirfd int, rel string) (int, error) {
	at := rel // the deepest existing part
	fd, err := OpenDir(dirfd, at)
	for errors.Is(err, unix.ENOENT) && at != "." {
		at = wire.ParentDir(at)
		fd, err = OpenDir(dirfd, at)
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
		next, err := OpenDir(fd, name)
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// Stat distinguishes one state of a file from another.
type Stat struct {
	Ino   uint64
	Size  int64
	Mtime int64 // ns
	Ctime int64 // ns
	Mode  uint32
}

// StatOf converts the kernel's answer.
func StatOf(st *unix.Stat_t) Stat {
	return Stat{Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Mode: st.Mode}
}

// Lstat is the state of a name in a directory; it does not follow a link.
func Lstat(dirfd int, name string) (Stat, error) {
	st, _, err := LstatLinks(dirfd, name)
	return st, err
}

// LstatLinks is the state of a name in a directory, and the number of hard links to it.
func LstatLinks(dirfd int, name string) (Stat, uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, 0, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return StatOf(&st), uint64(st.Nlink), nil //nolint:unconvert // the type differs between machines
}

// Fstat is the state of an open file.
func Fstat(fd int) (Stat, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return StatOf(&st), err
}

// DirEntry is a name in a directory, and what the directory says it is (unix.DT_*).
type DirEntry struct {
	Name string
	Kind uint8
}

// ReadDir reads the names in an open directory, and no more than one beyond limit. A
// directory that is removed meanwhile has no more names.
func ReadDir(fd, limit int) ([]DirEntry, error) {
	const head = 19 // the size of a record's head: inode, offset, length, kind; the name follows
	var out []DirEntry
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
				out = append(out, DirEntry{s, rec[18]})
			}
			rec = rec[size:]
		}
	}
	return out, nil
}

// ModTime returns the modification time.
func (s Stat) ModTime() time.Time { return time.Unix(0, s.Mtime) }

// IsRegular, IsSymlink and IsDir say what kind of file it is.
func (s Stat) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }
func (s Stat) IsSymlink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }
func (s Stat) IsDir() bool     { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// GitMode returns the mode git keeps of a file: whether it is a link, and
// whether its owner may execute it.
func (s Stat) GitMode() wire.Mode {
	switch {
	case s.IsSymlink():
		return wire.ModeSymlink
	case s.IsDir():
		return wire.ModeEmptyDir
	case s.Mode&0o100 != 0:
		return wire.ModeExec
	}
	return wire.ModeFile
}

// Kind names the kind of file in a word.
func (s Stat) Kind() string {
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

// ReadlinkAt is a link's target.
func ReadlinkAt(dirfd int, name string) ([]byte, error) {
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

// SyncDirAt makes the names in a directory durable.
func SyncDirAt(dirfd int, rel string) error {
	fd, err := OpenDir(dirfd, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// IsDenied reports that permissions exclude even the owner. A file system that is mounted
// read-only is a different error, as it does not concern a single path.
func IsDenied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

// IsGone reports that a path, or a directory on the way to it, does not exist or is
// something else by now.
func IsGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// RenameAt renames by descriptor, as renameat2 does with flags.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	if err := unix.Renameat2(fromDir, from, toDir, to, flags); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// IgnoreUnreachable returns nil for an error about a path that is missing or closed to its
// owner, and other errors unchanged.
func IgnoreUnreachable(err error) error {
	if IsGone(err) || errors.Is(err, ErrGone) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// SyncBeneath makes one file or directory durable. A missing one, or one that can't be
// opened, needs nothing.
func SyncBeneath(root int, p string) error {
	fd, err := OpenBeneath(root, p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if IsGone(err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENXIO) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is a pipe by now
		return &os.PathError{Op: "sync", Path: p, Err: err}
	}
	return nil
}

// MoveTo renames a file or folder to a name that does not exist. To move a folder into
// another one its owner must be able to write to it, so it is made writable for that moment
// if it is not.
func MoveTo(fromDir int, from string, toDir int, to string) error {
	err := RenameAt(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !IsDenied(err) {
		return err
	}
	st, serr := Lstat(fromDir, from)
	if serr != nil || !st.IsDir() || st.Mode&0o200 != 0 {
		return err
	}
	if unix.Fchmodat(fromDir, from, st.Mode&0o7777|0o700, 0) != nil {
		return err
	}
	if rerr := RenameAt(fromDir, from, toDir, to, unix.RENAME_NOREPLACE); rerr != nil {
		return errors.Join(rerr, unix.Fchmodat(fromDir, from, st.Mode&0o7777, 0))
	}
	return unix.Fchmodat(toDir, to, st.Mode&0o7777, 0)
}

// MakeExecutable sets the mode of a received file, without syncing; if exec is nil, it gets
// that of the file it is about to replace.
func MakeExecutable(file string, dir int, name string, exec *bool) error {
	if exec == nil {
		st, err := Lstat(dir, name)
		if err != nil && !IsGone(err) {
			return err
		}
		was := err == nil && st.IsRegular() && st.Mode&0o100 != 0
		exec = &was
	}
	if !*exec {
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o755), f.Close())
}
