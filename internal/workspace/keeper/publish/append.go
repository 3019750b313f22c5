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
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Programs that add to the end of a file, such as those that write logs, may
// write faster than a merged file can be put in place: by then there are words
// of theirs in the displaced file and in the new one, both at the end, and no
// merge of lines can tell which come first. What was appended to the one is
// appended to the other instead, as the program itself would have done a moment
// later. Nobody's bytes are replaced by that, so nothing can be lost.

// catchUp appends to the file name in dir what was appended to the displaced
// file since it was was. It reports false, and did nothing, where that is not
// all that happened to it, or the end of what was put in place is not the end
// it had; done is the displaced file's content that has been accounted for.
// marker remembers that it was done. A crash in between, and only that, doubles
// what was appended.
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
	ids, err := mv.store.Write(ctx, []gitstore.Object{{Kind: "blob", Content: content}})
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

// appendLate appends to the live file whole lines that a program, which still
// has the displaced file open, added to that one since it was seen. What is
// more than that, or too large, is in its kept version.
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

// readSmall reads a file of the engine's own; of one that is too large, or no
// file, the mode is empty.
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
		// Removed, or a link or pipe by now: that is newer.
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
