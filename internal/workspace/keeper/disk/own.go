package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
)

// maxJSON bounds a file of the keeper's own records.
const maxJSON = 256 << 20

// BadFile is the error for a file of the keeper's own that does not contain what it wrote.
type BadFile struct {
	File string
	Err  error
}

// Error implements error.
func (u *BadFile) Error() string { return u.File + ": " + u.Err.Error() }

// Unwrap is what it was noticed by.
func (u *BadFile) Unwrap() error { return u.Err }

// ReadJSON reads a file that the keeper wrote. If something else than a file is in its
// place, it is an error, and reading never blocks.
func ReadJSON(name string, v any) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return &BadFile{filepath.Base(name), errors.New("it is no file")}
	}
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxJSON {
		return &BadFile{filepath.Base(name), errors.New("it is no file, or too long a one")}
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxJSON))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return &BadFile{File: filepath.Base(name), Err: err}
	}
	return nil
}

// IgnoreGone returns nil for the error that a file does not exist.
func IgnoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PlainDir makes sure that dir is a real directory.
func PlainDir(dir string) error {
	st, err := os.Lstat(dir)
	if err == nil && st.IsDir() {
		return nil
	}
	if err == nil {
		if err := os.Remove(dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// KeepFile makes sure that a file is regular and holds content.
func KeepFile(name, content string) error {
	if st, err := os.Lstat(name); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(content)) {
		if got, err := os.ReadFile(name); err == nil && string(got) == content {
			return nil
		}
	}
	return WriteDurably(name, []byte(content))
}

// WriteDurably replaces a file of the engine's own atomically and durably.
func WriteDurably(name string, content []byte) error {
	return WriteDurablyBy(name+".tmp-choir", name, content)
}

// WriteDurablyBy is WriteDurably with the temporary name tmp.
func WriteDurablyBy(tmp, name string, content []byte) error {
	if err := WriteWhole(tmp, name, content); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(name))
}

// WriteWhole is WriteDurablyBy for a file that may have its old content after a power cut.
func WriteWhole(tmp, name string, content []byte) error {
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, name)
}

// WriteNew writes a file that does not exist, without syncing it.
func WriteNew(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Lock opens a file and takes its lock. Errors: fault.InUse when another has it.
func Lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = fault.New("", fault.InUse, "Another keeper works on this computer; end it first.", fmt.Errorf("lock %s: %w", name, err))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// RemoveIfThere removes a file, which need not be there.
func RemoveIfThere(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Exists reports whether there is something under a name.
func Exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RemoveTree removes whatever is at name, an absolute path of the engine's own, even if it
// is deep or closed by its modes.
func RemoveTree(name string) error {
	d, err := hostfs.Open(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.RemoveAll(context.Background(), filepath.Base(name)), d.Close())
}

// Up to how many files and directories are synced one by one; beyond it the whole file
// system is synced once, which waits for everybody's writes.
const (
	SyncEachUpTo = 300 // for what was written in the computer
	SyncAllAbove = 64  // for what a plan of the keeper's writes itself
)

// SyncAll makes all that is on a directory's file system durable.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// RemoveEmpty removes a folder that contains nothing but folders, as git does where a ref
// is to be; anything else stays.
func RemoveEmpty(dir string) error {
	if st, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return nil
	}
	found, err := os.ReadDir(dir)
	for _, f := range found {
		err = errors.Join(err, RemoveEmpty(filepath.Join(dir, f.Name())))
	}
	return errors.Join(err, os.Remove(dir))
}

// BootID identifies the machine's current boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// BootTime is when the machine's current boot began, by today's clock.
func BootTime() (time.Time, error) {
	var up unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	return time.Now().Add(-time.Duration(up.Nano())), err
}

// KeepsOrder reports whether the file system of an open file is known to bring changes of
// names to the disk in the order in which they are made, so that of two the later one is
// never there without the earlier. Ext4 and XFS do, by their journals. Btrfs and F2FS write
// those of a file that is synced ahead of others.
func KeepsOrder(fd int) (bool, error) {
	var st unix.Statfs_t
	for {
		if err := unix.Fstatfs(fd, &st); !errors.Is(err, unix.EINTR) {
			return st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC || st.Type == unix.TMPFS_MAGIC, err
		}
	}
}
