package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Programs that append to a file, such as those that write logs, may write faster than a
// merged file can be put in place. By then both the displaced file and the new one have
// lines of the program at their ends, and no merge by lines can tell which come first. So
// what was appended to the displaced file is appended to the new one instead, as the
// program itself would have done a moment later. No bytes are replaced by that, so nothing
// can be lost.

// catchUp appends to the file name in dir what was appended to the displaced file since its
// content was was. It returns false, and does nothing, if the displaced file changed in any
// other way, or if the file that was put in place no longer has the same end; done is the
// content of the displaced file that has been accounted for. The file at marker records
// that it was done. Only a crash between the appending and the marker duplicates what was
// appended.
func (mv *Mover) catchUp(ctx context.Context, was, placed gitstore.Entry, displaced, marker string, dir int, name string) (done gitstore.Entry, ok bool, err error) {
	if b, err := os.ReadFile(marker); err == nil {
		return done, true, json.Unmarshal(b, &done)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return gitstore.None, false, err
	}
	if !was.IsRegular() || !placed.IsRegular() {
		return gitstore.None, false, nil
	}
	before, ok, err := mv.store.SmallContent(ctx, was)
	if err != nil || !ok {
		return gitstore.None, false, err
	}
	after, ok, err := mv.store.SmallContent(ctx, placed)
	if err != nil || !ok || !sameEnd(before, after) {
		return gitstore.None, false, err
	}
	content, mode, err := readSmall(displaced)
	if err != nil || mode != was.Mode || len(content) == len(before) || !bytes.HasPrefix(content, before) {
		return gitstore.None, false, err
	}
	if ok, err := appendAt(dir, name, content[len(before):]); err != nil || !ok {
		return gitstore.None, false, err
	}
	ids, err := mv.store.Write(ctx, []objects.Object{{Kind: "blob", Content: content}})
	if err != nil {
		return gitstore.None, false, err
	}
	done = gitstore.Entry{Mode: mode, ID: ids[0]}
	b, err := json.Marshal(done)
	if err != nil {
		return gitstore.None, false, err
	}
	return done, true, disk.WriteDurably(marker, b)
}

// appendLate appends to the live file the whole lines that a program, which still has the
// displaced file open, added to that file since it was last read. Anything else, or
// too much, is only in the version that is kept under a ref.
func (mv *Mover) appendLate(ctx context.Context, seen, late gitstore.Entry, dir int, name string) error {
	if !seen.IsRegular() || !late.IsRegular() {
		return nil
	}
	before, ok, err := mv.store.SmallContent(ctx, seen)
	if err != nil || !ok || len(before) > 0 && before[len(before)-1] != '\n' {
		return err
	}
	now, ok, err := mv.store.SmallContent(ctx, late)
	if err != nil || !ok || len(now) == len(before) || !bytes.HasPrefix(now, before) {
		return err
	}
	_, err = appendAt(dir, name, now[len(before):])
	return err
}

// readSmall reads a file of the engine's own. If it is too large, or not a regular file,
// the returned mode is empty.
func readSmall(name string) ([]byte, wire.Mode, error) {
	r, st, err := disk.OpenContent(unix.AT_FDCWD, name, -1)
	if errors.Is(err, disk.ErrGone) || err != nil && disk.IsGone(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, gitstore.MaxMerge+1))
	if err != nil || len(b) > gitstore.MaxMerge || !st.IsRegular() {
		return nil, "", err
	}
	return b, st.GitMode(), nil
}

// sameEnd reports whether two texts end with the same whole line.
func sameEnd(a, b []byte) bool {
	last := func(s []byte) []byte {
		if len(s) < 2 || s[len(s)-1] != '\n' {
			return nil
		}
		return s[bytes.LastIndexByte(s[:len(s)-1], '\n')+1:]
	}
	return last(a) != nil && bytes.Equal(last(a), last(b))
}

// appendAt appends to a regular file in an open directory, durably.
func appendAt(dir int, name string, tail []byte) (bool, error) {
	fd, err := disk.OpenBeneath(dir, name, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		// It was removed, or replaced by a link or a pipe, which is newer.
		if disk.IsGone(err) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
			return false, nil
		}
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false, errors.Join(err, f.Close())
	}
	if _, err := f.Write(tail); err != nil {
		return false, errors.Join(fmt.Errorf("append to %q: %w", name, err), f.Close())
	}
	return true, errors.Join(f.Sync(), f.Close())
}
