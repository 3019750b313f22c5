package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// Dir is a directory held by descriptor. What happens to its path afterwards
// does not matter.
type Dir struct {
	file *os.File // O_PATH
}

// ErrLink is in errors of opening what has a link on its way, or is no
// directory where one is asked for.
var ErrLink = errors.New("a link, or something other than a folder, is in the way")

// Open opens a directory by a path on which no box can write.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// Close lets the directory go.
func (d *Dir) Close() error { return d.file.Close() }

// File is the descriptor, good for its number and fstat only; d keeps it.
func (d *Dir) File() *os.File { return d.file }

func (d *Dir) fd() int { return int(d.file.Fd()) }

// beneath opens name, which is relative and slash-separated, and fails with
// ErrLink where a link is on its way.
func (d *Dir) beneath(name string, flags int, mode uint32) (*os.File, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode)}
	if !defence.Off(defence.HostBeneath) {
		how.Flags |= unix.O_NOFOLLOW
		how.Resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(d.fd(), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case (err == unix.EINTR || err == unix.EAGAIN) && try < 100:
			continue // something on the way was renamed at this moment
		case err == unix.ELOOP || err == unix.ENOTDIR || err == unix.EXDEV:
			return nil, &fs.PathError{Op: "open", Path: name, Err: ErrLink}
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
}

// check refuses what is no plain relative path.
func check(name string) error {
	if name == "" || strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// Dir opens a directory beneath d.
func (d *Dir) Dir(name string) (*Dir, error) {
	f, err := d.beneath(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// Path opens whatever is at name, but no link, as a place to mount from.
func (d *Dir) Path(name string) (*os.File, error) {
	f, err := d.beneath(name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK && !defence.Off(defence.HostBeneath) {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: name, Err: ErrLink}, err, f.Close())
	}
	return f, nil
}

// Source opens what is at a path on which no box can write, as a place to mount
// from. What is there may have been made by a box, so it must not be a link.
func Source(path string) (*os.File, error) {
	parent, err := Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.Path(filepath.Base(path))
}

// Kind is what a layer of an overlay has at a name.
type Kind int

// Kinds.
const (
	Other    Kind = iota // a file or a link
	Folder               // a directory, seen together with those below it
	Opaque               // one that hides those below it
	Whiteout             // nothing, whatever the layers below have
)

// KindAt says what is at name beneath an open directory; fs.ErrNotExist when
// nothing is.
func KindAt(dir *os.File, name string) (Kind, error) {
	f, err := (&Dir{dir}).beneath(name, unix.O_PATH, 0)
	if errors.Is(err, ErrLink) {
		return Other, nil
	}
	if err != nil {
		return Other, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Other, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0:
		return Whiteout, nil
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return Other, nil
	}
	var mark [2]byte
	if n, err := unix.Getxattr(proc(int(f.Fd())), "user.overlay.opaque", mark[:]); err == nil && n == 1 && mark[0] == 'y' {
		return Opaque, nil
	}
	return Folder, nil
}

// Holds reports whether f lies in d at this moment, by whatever name it was
// opened.
func (d *Dir) Holds(f *os.File) bool {
	own, err1 := os.Readlink(proc(d.fd()))
	other, err2 := os.Readlink(proc(int(f.Fd())))
	if err1 != nil || err2 != nil {
		return true
	}
	_, in := Under(own, other)
	return in
}

// Exists reports whether name is there and is a directory.
func (d *Dir) Exists(name string) (bool, error) {
	sub, err := d.Dir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, sub.Close()
}

// MkdirAll makes a directory and those above it, and opens it.
func (d *Dir) MkdirAll(name string, mode fs.FileMode) (*Dir, error) {
	sub, err := d.Dir(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	at := d
	for rest := name; rest != ""; {
		var first string
		first, rest, _ = strings.Cut(rest, "/")
		err := unix.Mkdirat(at.fd(), first, uint32(mode.Perm()))
		if err == unix.EEXIST {
			err = nil
		}
		var next *Dir
		if err == nil {
			next, err = at.Dir(first)
		}
		if at != d {
			err = errors.Join(err, at.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
		at = next
	}
	return at, nil
}

// Mkdir makes a directory and those above it.
func (d *Dir) Mkdir(name string, mode fs.FileMode) error {
	sub, err := d.MkdirAll(name, mode)
	if err != nil {
		return err
	}
	return sub.Close()
}

// ReadDir lists name. What it says of an entry may have changed since.
func (d *Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := d.beneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// Rename moves a directory to another name beneath d. Nothing may be there
// that isn't an empty directory.
func (d *Dir) Rename(from, to string) error {
	a, err := d.parent(from)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := d.parent(to)
	if err != nil {
		return err
	}
	defer b.Close()
	return move(a, path.Base(from), b, path.Base(to))
}

// move renames a directory. One that its owner may not write can't be moved to
// another parent, so its mode is mended.
func move(a *Dir, from string, b *Dir, to string) error {
	err := unix.Renameat(a.fd(), from, b.fd(), to)
	if err == unix.EACCES || err == unix.EPERM {
		if err := openUp(a, from); err != nil {
			return err
		}
		err = unix.Renameat(a.fd(), from, b.fd(), to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// openUp lets the owner of a directory write it.
func openUp(at *Dir, name string) error {
	if defence.Off(defence.RemoveClosed) {
		return nil
	}
	sub, err := at.Dir(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	return sub.chmod(0o700)
}

// chmod changes the mode by descriptor, which fchmod refuses for O_PATH.
func (d *Dir) chmod(mode uint32) error {
	if err := unix.Chmod(proc(d.fd()), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: d.file.Name(), Err: err}
	}
	return nil
}

func proc(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (d *Dir) parent(name string) (*Dir, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	return d.Dir(path.Dir(name))
}

// Sync makes the names in name durable.
func (d *Dir) Sync(name string) error {
	f, err := d.beneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// FS shows a directory to readers; nothing in it leads outside. Its descriptor
// lives as long as the value does.
func (d *Dir) FS(name string) (fs.FS, error) {
	sub, err := d.Dir(name)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	root, err := os.OpenRoot(proc(sub.fd()))
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}

// Regular shows a directory to readers as FS does, and of what is in it files and
// folders alone: a link, a pipe or a device is an error, at once.
func (d *Dir) Regular(name string) (fs.FS, error) {
	sub, err := d.Dir(name)
	if err != nil {
		return nil, err
	}
	return regular{sub}, nil
}

type regular struct{ dir *Dir }

// Open implements fs.FS.
func (r regular) Open(name string) (fs.File, error) {
	f, err := r.dir.beneath(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("it is %s", st.Mode())}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Under returns path relative to the directory at root, if it lies in it. Both
// must be absolute and clean.
func Under(root, path string) (string, bool) {
	if path == root {
		return ".", true
	}
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/")
	return filepath.ToSlash(rel), ok
}

// ID tells one file from all others while somebody holds it.
type ID struct {
	Dev, Ino uint64
}

// Identify says which file a descriptor is of.
func Identify(f *os.File) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ID{}, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	return ID{uint64(st.Dev), st.Ino}, nil
}

// WriteFile writes a file, and makes the folders above it.
func (d *Dir) WriteFile(name string, content []byte, mode fs.FileMode) error {
	if err := check(name); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := d.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	f, err := d.beneath(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, uint32(mode.Perm()))
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(mode.Perm()), f.Close())
}

// SyncFS makes all that was written beneath name durable, with all else of its
// file system.
func (d *Dir) SyncFS(name string) error {
	f, err := d.beneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
