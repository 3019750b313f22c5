package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Opened is a file of the live tree that was opened once: its ID identifies what is read
// from it, whatever gets its path afterwards.
type Opened struct {
	wire.FileInfo
	// State identifies the file's state when it was opened, whatever it contains.
	State string
	io.ReaderAt
	file *os.File
	was  disk.Stat
}

// A file that was changed a moment ago is examined again, a few times, after longer than
// the resolution of a file system's clock.
const (
	quietTries = 3
	quietTime  = time.Duration(scan.RacyWindow) + 20*time.Millisecond
)

// Open opens the file at a path itself; it follows no link. Its ID is its content's or, for
// a large one that was not captured as it is, its State: hashing would take as long as
// reading it. A file that is being written to has no ID.
func (e *Engine) Open(ctx context.Context, p string) (*Opened, error) {
	const op = "keeper.Open"
	if err := badPath(p, false); err != nil {
		return nil, fault.Wrap(op, err)
	}
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return nil, fileError(op, p, err)
	}
	defer unix.Close(dir)
	name := path.Base(p)
	st, err := disk.Lstat(dir, name)
	if err == nil && !st.IsRegular() {
		return nil, fault.New(op, fault.Invalid, "List it instead.", fmt.Errorf("%s is a %s", wire.Path(p).Shown(), st.Kind()))
	}
	if err != nil {
		return nil, fileError(op, p, err)
	}
	fd, err := disk.OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileError(op, p, err)
	}
	o := &Opened{file: os.NewFile(uintptr(fd), name)}
	err = e.identify(ctx, o, p)
	if err == nil && !o.was.IsRegular() {
		err = fault.New(op, fault.Conflict, "Ask for it again.", fmt.Errorf("%q is another file now", wire.Path(p).Shown()))
	}
	if err != nil {
		return nil, fileError(op, p, errors.Join(err, o.Close()))
	}
	st = o.was
	o.Path, o.Kind, o.Size, o.Exec, o.Time = wire.Path(p), "file", st.Size, st.Mode&0o100 != 0, st.ModTime().UnixMilli()
	return o, nil
}

// identify determines what is open, and its ID.
func (e *Engine) identify(ctx context.Context, o *Opened, p string) error {
	for range quietTries {
		st, err := disk.Fstat(int(o.file.Fd()))
		if err != nil || !st.IsRegular() {
			o.was = st
			return err
		}
		o.was, o.State, o.ID, o.ReaderAt = st, stateOf(st), "", o.file
		if seen := e.lastSeen(p); seen.Exists() && seen.Stat == st {
			o.ID = seen.ID
			return nil
		}
		if st.Size <= quicklyRead {
			held, err := e.hold(o.file, st)
			if err != nil {
				return err
			}
			if held != nil {
				o.ID, o.ReaderAt = held.id, held.content
				return nil
			}
			continue // it shrank while it was read
		}
		// A state identifies a file's content only while nobody has it open for writing, or
		// mapped, and if a later change can't have the same time.
		if !disk.Unwritten(o.file) {
			return nil
		}
		now, err := e.scanner.FileClock()
		if err != nil {
			return err
		}
		if st.Ctime > now-scan.RacyWindow {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(time.Duration(st.Ctime-now), 0) + quietTime):
			}
			continue
		}
		if o.still() == nil {
			o.ID = o.State
			return nil
		}
	}
	return nil
}

// held is a small file's content in memory.
type held struct {
	id      string
	content *bytes.Reader
}

// hold reads a small file into memory, so that exactly what was hashed is returned; nil
// when the file is shorter by then.
func (e *Engine) hold(f *os.File, st disk.Stat) (*held, error) {
	b := make([]byte, st.Size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	r := bytes.NewReader(b)
	en, err := e.store.HashEntry(r, st)
	return &held{en.ID, r}, err
}

// still says whether a file is still in the state in which it was opened.
func (o *Opened) still() error {
	st, err := disk.Fstat(int(o.file.Fd()))
	if err == nil && st != o.was {
		err = errChangedWhileRead
	}
	return err
}

var errChangedWhileRead = errors.New("the file changed while it was read")

// Whole says, after the file was read, whether all of that was what ID identifies.
func (o *Opened) Whole() error {
	if _, small := o.ReaderAt.(*bytes.Reader); small || o.ID == "" {
		return nil
	}
	return o.still()
}

// Close implements io.Closer.
func (o *Opened) Close() error { return o.file.Close() }

// stateOf identifies the state of a file: its inode, size and time of change.
func stateOf(st disk.Stat) string {
	b := []byte("choir file state\x00")
	for _, n := range []uint64{st.Ino, uint64(st.Size), uint64(st.Mtime), uint64(st.Ctime), uint64(st.Mode)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// heldBy returns the id of a file's content if it is the one that the caller names by want,
// a content's id or a state's. It is a conflict if the file differs.
func (e *Engine) heldBy(dir int, name, p, want string) (string, error) {
	before, err := disk.Lstat(dir, name)
	if err != nil {
		return "", err
	}
	was, _, err := e.store.EntryAt(dir, name, e.scanner.Index.At(p).Entry)
	if err != nil {
		return "", err
	}
	if was.ID == want && was.Exists() {
		return want, nil
	}
	after, err := disk.Lstat(dir, name)
	if err == nil && (after != before || stateOf(before) != want || !was.Exists()) {
		err = changedMeanwhile(p)
	}
	return was.ID, err
}

// mayDisplace reports whether what was displaced is what a caller wanted to displace.
func mayDisplace(want string, was gitstore.Entry) bool {
	switch want {
	case "":
		return true
	case "none":
		return !was.Exists()
	case "any":
		return was.Exists()
	}
	return was.ID == want
}
