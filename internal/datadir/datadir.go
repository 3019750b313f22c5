// Package datadir defines the layout of the data directory, the lock by which one control
// plane owns it, its format version, and the disk space that is reserved for the log.
package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
)

// Format is the version of the directory's layout that this build writes. Format 2 lists
// the directory's parts (see Parts); in format 3 each log has a stream of its own; in
// format 4 events name their actor; in format 5 a message of a log may contain several
// events. An earlier format is raised to this one before a log is opened (see Raise).
const Format = 5

// Dir is an open data directory, locked until Close.
type Dir struct {
	path        string
	lock        *os.File
	format      int
	unversioned bool
	marking     sync.Mutex // held while the list of parts is written
	making      bool       // whether its first start has not been committed yet
}

// Open creates the directory if it is missing, takes its lock and checks its version. The
// content of a new directory counts only after its first start was committed by Commit; if
// that did not happen, the first start is begun anew. Errors: fault.InUse when another
// process holds it, fault.Newer when a later version of ChoirOS wrote it, fault.DiskFull.
func Open(path string) (*Dir, error) { return open(path, false) }

// OpenDamaged is Open for inspection and recovery. It also opens a directory whose version
// is missing or no number (see Unversioned). Where there is no data directory, or one whose
// first start was not committed, it returns fault.NotFound and neither creates anything nor
// changes permissions, because a wrong path must not look like undamaged data.
func OpenDamaged(path string) (*Dir, error) { return open(path, true) }

// Unversioned reports whether the directory's version could not be read.
func (d *Dir) Unversioned() bool { return d.unversioned }

func open(path string, damaged bool) (*Dir, error) {
	const op = "datadir.Open"
	holds := true
	if damaged {
		var err error
		if holds, err = Holds(path); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, diskError(op, path, err)
	}
	if err := private(path, holds); err != nil && (holds || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fault.Wrap(op, err)
	}
	if !holds {
		return nil, fault.New(op, fault.NotFound, "Check the path given with --data or CHOIR_DATA, and that its disk is mounted.",
			fmt.Errorf("nothing of choir is stored in %s", path))
	}
	lock, err := os.OpenFile(filepath.Join(path, "choir.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, diskError(op, path, err)
	}
	if err := take(lock); err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, diskError(op, path, err)
		}
		holder := "another choir"
		if pid, _, _ := strings.Cut(lockedBy(lock), " "); pid != "" {
			holder += " (process " + pid + ")"
		}
		return nil, fault.New(op, fault.InUse, "Stop it, or start this one with another --data.",
			fmt.Errorf("%s is in use by %s", path, holder))
	}
	d := &Dir{path: path, lock: lock}
	err = d.prepare(damaged)
	if damaged && fault.Is(err, fault.Damaged) {
		d.unversioned, err = true, nil
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ours are names by which a data directory is recognised that has lost its version.
var ours = []string{control, partsFile, "keys/account.nk", "nats/jetstream"}

// Holds reports whether there is anything of a data directory at a path.
func Holds(path string) (bool, error) {
	for _, name := range append([]string{"version", "choir.lock", "computers"}, ours...) {
		_, err := os.Lstat(filepath.Join(path, name))
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return false, diskError("datadir.Holds", path, err)
		}
	}
	return false, nil
}

// private makes a directory accessible to its owner only, who must be this user; without
// closes it only checks the owner. The directory may have existed before: another user of
// the machine who can write to it could replace our keys, and one who can read it could
// read everything in it.
func private(path string, closes bool) error {
	if defence.Off(defence.DataPrivate) {
		return nil
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return diskError("", path, err)
	}
	defer dir.Close() // nothing is written
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fault.New("", fault.Denied, "Run this as that user, or choose another directory with --data.",
			fmt.Errorf("%s belongs to another user of this machine (%d), who could exchange what is in it", path, st.Uid))
	}
	if st.Mode&0o077 == 0 || !closes {
		return nil
	}
	if err := dir.Chmod(os.FileMode(st.Mode & 0o700)); err != nil {
		return fault.New("", fault.Denied, "Choose another directory with --data, on a file system that knows permissions.",
			fmt.Errorf("%s is open to other users of this machine, and can't be closed: %w", path, err))
	}
	return nil
}

// dying is how long to wait for a lock whose owner has died. A process that the owner was
// just starting may have inherited the lock, and drops it within moments.
const dying = 2 * time.Second

func take(lock *os.File) error {
	for end := time.Now().Add(dying); ; time.Sleep(2 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || process.Living(lockedBy(lock)) != 0 || time.Now().After(end) {
			return err
		}
	}
}

// lockedBy returns the process.ID of the newest owner, as far as it is known.
func lockedBy(lock *os.File) string {
	b := make([]byte, 64)
	n, _ := lock.ReadAt(b, 0) // if it can't be read, the owner is not known
	return strings.TrimSpace(string(b[:n]))
}

func (d *Dir) prepare(damaged bool) error {
	const op = "datadir.Open"
	if err := d.lock.Truncate(0); err != nil {
		return diskError(op, d.path, err)
	}
	if _, err := d.lock.WriteAt([]byte(process.Self()+"\n"), 0); err != nil {
		return diskError(op, d.path, err)
	}
	file := filepath.Join(d.path, "version")
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.create(damaged)
	case err != nil:
		return diskError(op, d.path, err)
	case len(bytes.Trim(b, "\x00")) == 0 && !damaged:
		// Either a power cut came at the beginning of the first start, or the file is
		// damaged; create tells which.
		return d.create(damaged)
	case bytes.HasPrefix(b, []byte(making)) && damaged:
		return fault.New(op, fault.NotFound, "Run choir up, which begins it anew.", fmt.Errorf("the first start on %s did not come to its end, so nothing in it counts", d.path))
	case bytes.HasPrefix(b, []byte(making)):
		return d.remake(string(b))
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || v < 1 {
		return fault.New(op, fault.Damaged, "Run choir recover, restore that file from a backup, or start with another --data.",
			fmt.Errorf("%s does not hold a version number", file))
	}
	if v > Format {
		return fault.New(op, fault.Newer, "Install that version or a later one; this one leaves the data as they are.",
			fmt.Errorf("%s was written by a newer version of ChoirOS (data format %d; this one knows %d)", d.path, v, Format))
	}
	d.format = v
	return nil
}

// create begins the layout of a new directory. A directory that contains our files is not
// new: its version is missing. For inspection and recovery it is not marked as uncommitted.
func (d *Dir) create(damaged bool) error {
	const op = "datadir.Open"
	for _, name := range ours {
		if _, err := os.Lstat(d.Path(name)); err == nil {
			return fault.New(op, fault.Damaged, "Run choir recover, restore the file version from a backup, or start with another --data.",
				fmt.Errorf("%s holds %s, but no version", d.path, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return diskError(op, d.path, err)
		}
	}
	if damaged {
		// In format 1 there is no list of parts, and here there are no parts.
		return errors.Join(d.Complete(), d.setFormat(1))
	}
	return errors.Join(d.begin(), d.Complete())
}

// subs are the directories of a data directory.
var subs = []string{"nats", "keys", "cache", "blobs", "computers"}

func (d *Dir) setFormat(v int) error {
	if d.format == v || d.making { // while d.making, only Commit writes the version
		return nil
	}
	if err := WriteFile(d.Path("version"), []byte(strconv.Itoa(v)+"\n"), 0o600); err != nil {
		return err
	}
	d.format = v
	return nil
}

// Raise durably sets the directory's version to Format before anything is stored in it that
// an earlier version of ChoirOS would take for damage; from then on that version refuses
// the directory. A directory whose version can't be read is refused anyway.
func (d *Dir) Raise() error {
	switch {
	case d.unversioned:
		return nil
	case d.format == 1: // format 1 has no list of parts, which all later formats have
		return d.Mark()
	}
	return d.setFormat(Format)
}

// Complete makes missing directories. Before it is called, a missing directory may be a
// sign of damage.
func (d *Dir) Complete() error {
	for _, sub := range subs {
		if err := os.MkdirAll(d.Path(sub), 0o700); err != nil {
			return diskError("datadir.Complete", d.path, err)
		}
	}
	return nil
}

// Close releases the lock.
func (d *Dir) Close() error { return process.Unlock(d.lock) }

// Path joins names to the directory's path.
func (d *Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Computer joins names to a computer's directory.
func (d *Dir) Computer(cid contract.CID, names ...string) string {
	return d.Path(append([]string{"computers", string(cid)}, names...)...)
}

// Computers lists the computers that have a directory here.
func (d *Dir) Computers() ([]contract.CID, error) {
	entries, err := os.ReadDir(d.Path("computers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap("datadir.Computers", err)
	}
	var out []contract.CID
	for _, e := range entries {
		if cid := contract.CID(e.Name()); e.IsDir() && cid.Validate() == nil {
			out = append(out, cid)
		}
	}
	return out, nil
}

// WriteFile replaces path atomically and durably: file and directory are
// synced before it returns.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	if err := replaceFile(path, b, mode, (*os.File).Sync); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// WritePassing replaces path atomically for readers, but not durably: its content matters
// only to this process, or is made again if it is damaged.
func WritePassing(path string, b []byte, mode fs.FileMode) error {
	return replaceFile(path, b, mode, func(*os.File) error { return nil })
}

func replaceFile(path string, b []byte, mode fs.FileMode, settle func(*os.File) error) error {
	const op = "datadir.WriteFile"
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return diskError(op, path, err)
	}
	defer os.Remove(tmp.Name()) // fails harmlessly once renamed
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = settle(tmp)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return diskError(op, path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return diskError(op, path, err)
	}
	return nil
}

// Room is what is free on a disk for this user.
type Room struct {
	Bytes int64
	Files int64 // how many files can be made; math.MaxInt64 if the file system has no limit
}

const (
	// SpaceLow is how little free space, in bytes, is worth a warning.
	SpaceLow = 1 << 30
	// FilesLow is the same for files: a disk can have free space and yet no room for
	// another file.
	FilesLow = 10_000
)

// Scarce reports whether so little is free that a warning is due.
func (r Room) Scarce() bool { return r.Bytes < SpaceLow || r.Files < FilesLow }

// String describes what is free, and how many files if they are few.
func (r Room) String() string {
	text := fmt.Sprintf("%d MB are free for the data directory", r.Bytes>>20)
	if r.Files < FilesLow {
		text += fmt.Sprintf(", and only %d files can be made", r.Files)
	}
	return text
}

// Free returns what is free on the directory's disk.
func (d *Dir) Free() (Room, error) { return FreeAt(d.path) }

// FreeAt is Free for a directory that another process may have open.
func FreeAt(path string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Room{}, fault.Wrap("datadir.Free", err)
	}
	room := Room{Bytes: int64(st.Bavail) * st.Bsize, Files: math.MaxInt64}
	if st.Files > 0 {
		room.Files = int64(min(st.Ffree, math.MaxInt64))
	}
	return room, nil
}

func diskError(op, path string, err error) error {
	switch {
	case fault.NoSpace(err):
		return fault.New(op, fault.DiskFull, "Free some space on the disk that holds "+path+" and start again.", err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(op, fault.Denied, "Make "+path+" writable for this user, or start with another --data.", err)
	}
	return fault.Wrap(op, err)
}
