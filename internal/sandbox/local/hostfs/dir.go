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

// ErrLink is in the errors of opening a path on which there is a link, or that is not a
// directory where one is wanted.
var ErrLink = errors.New("a link, or something other than a folder, is in the way")

// Open opens a directory by a path on which no box can write.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// Close closes the directory's descriptor.
func (d *Dir) Close() error { return d.file.Close() }

// File returns the descriptor, for its number and fstat only; d keeps it.
func (d *Dir) File() *os.File { return d.file }

func (d *Dir) fd() int { return int(d.file.Fd()) }

// beneath opens name, which is relative and slash-separated, and fails with ErrLink if
// there is a link on the path.
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
			continue // something on the path was renamed at this moment
		case err == unix.ELOOP || err == unix.ENOTDIR || err == unix.EXDEV:
			return nil, &fs.PathError{Op: "open", Path: name, Err: ErrLink}
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
}

// check refuses a name that is not a plain relative path.
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

// Path opens anything at name except a link, as a place to mount from.
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

// Source opens the file at a path on which no box can write, as a place to mount from. A
// box may have made the file itself, so it must not be a link.
func Source(path string) (*os.File, error) {
	parent, err := Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.Path(filepath.Base(path))
}

// Kind says what a layer of an overlay has at a name.
type Kind int

// Kinds.
const (
	Other    Kind = iota // a file or a link
	Folder               // a directory, merged with those of the layers below
	Opaque               // a directory that hides those of the layers below
	Whiteout             // nothing, even if the layers below have something
)

// KindAt says what is at name beneath an open directory; fs.ErrNotExist if there is
// nothing.
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

// Exists reports whether there is a directory at name.
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

// Rename moves a directory to another name beneath d. Only an empty directory may be at the
// new name.
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

// move renames a directory. A directory that its owner may not write can't be moved to
// another parent, so its mode is changed first.
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

// openUp makes a directory writable for its owner.
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

// chmod changes the mode by way of /proc, for fchmod refuses an O_PATH descriptor.
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

// Sync syncs the directory name, so that the names in it are durable.
func (d *Dir) Sync(name string) error {
	f, err := d.beneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// FS returns a directory as a file system in which no name leads outside. The descriptor is
// closed when the value is collected.
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

// Regular is FS for files and folders only: opening a link, a pipe or a device is an error,
// and never blocks.
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

// ID distinguishes a file from all others for as long as somebody has it open.
type ID struct {
	Dev, Ino uint64
}

// Identify returns the ID of the file of a descriptor.
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

// SyncFS syncs the file system on which name is.
func (d *Dir) SyncFS(name string) error {
	f, err := d.beneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
