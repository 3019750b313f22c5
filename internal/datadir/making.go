package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
)

// making is the first line of the file version in a directory whose first start is not
// finished: nobody was told of anything in it, so its content does not count. The lines
// after it list what was there before, which belongs to somebody else.
const making = "making\n"

// unmade is the folder into which a start moves what an earlier unfinished first start had
// made.
const unmade = "unmade"

// made lists the key files that a first start makes.
var made = []string{"operator.nk", "system.nk", "account.nk", "master.key", "secrets.sealed", "api-token"}

// Making reports whether the directory's content does not count yet. New files in it need
// not be synced by whoever makes them, because Commit does that.
func (d *Dir) Making() bool {
	d.marking.Lock()
	defer d.marking.Unlock()
	return d.making
}

// BeingMade reports whether a first start on the directory at a path is not finished, as
// far as that can be read.
func BeingMade(path string) bool {
	b, err := os.ReadFile(filepath.Join(path, "version"))
	return err == nil && bytes.HasPrefix(b, []byte(making))
}

// begin marks a new directory as one whose first start is not finished. The mark is on disk
// before anything else is made.
func (d *Dir) begin() error {
	found, err := d.found()
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, p := range found {
		list.WriteString(strconv.Quote(p) + "\n")
	}
	body := making + list.String()
	sum := sha256.Sum256([]byte(body))
	if err := WritePassing(d.Path("version"), []byte(body+"sum "+hex.EncodeToString(sum[:])+"\n"), 0o600); err != nil {
		return err
	}
	d.making = true
	return syncAll(d.path)
}

// found lists what exists in the places where a first start makes files.
func (d *Dir) found() ([]string, error) {
	var out []string
	for _, sub := range []string{"nats", "keys", "blobs", "computers"} {
		entries, err := os.ReadDir(d.Path(sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, diskError("datadir.found", d.path, err)
		}
		for _, e := range entries {
			out = append(out, filepath.Join(sub, e.Name()))
		}
	}
	return out, nil
}

// remake begins a first start again that was not committed, as its version file says. What
// the earlier start had made is moved to unmade; what was there before it stays.
func (d *Dir) remake(version string) error {
	const op = "datadir.Open"
	body, sum, ok := strings.Cut(version, "sum ")
	want := sha256.Sum256([]byte(body))
	if !ok || strings.TrimSpace(sum) != hex.EncodeToString(want[:]) {
		return fault.New(op, fault.Damaged, "Run choir recover, restore that file from a backup, or start with another --data.",
			fmt.Errorf("%s does not hold a version number", d.Path("version")))
	}
	// The process that wrote it may have died before it was on disk.
	if err := syncAll(d.path); err != nil {
		return err
	}
	var before []string
	for line := range strings.Lines(strings.TrimPrefix(body, making)) {
		p, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return fault.New(op, fault.Damaged, recoverHint, fmt.Errorf("%s names %s", d.Path("version"), line))
		}
		before = append(before, p)
	}
	now, err := d.found()
	if err != nil {
		return err
	}
	now = slices.DeleteFunc(now, func(p string) bool {
		return slices.Contains(before, p) || filepath.Dir(p) == "keys" && !slices.Contains(made, filepath.Base(p))
	})
	now = append(now, partsFile, control, control+"-wal", control+"-shm", controlHead)
	// Files that are in unmade already stay. They come from a start that died here, or
	// from a directory that was copied while it was committed, and may count; files that
	// were made since then do not.
	aside := d.Path("aside", unmade)
	for _, p := range now {
		if _, err := os.Lstat(d.Path(p)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return diskError(op, d.path, err)
		}
		to := filepath.Join(aside, p)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return diskError(op, d.path, err)
		}
		err := error(nil)
		if _, err = os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(d.Path(p), to)
		} else if err == nil {
			err = os.RemoveAll(d.Path(p))
		}
		if err != nil {
			return diskError(op, d.path, err)
		}
	}
	d.making = true
	return d.Complete()
}

// Commit makes the whole content of a new directory durable at once and marks it as
// finished. From then on whoever makes a file must sync it. In a directory that is finished
// it does nothing.
func (d *Dir) Commit() error {
	const op = "datadir.Commit"
	d.marking.Lock()
	defer d.marking.Unlock()
	if !d.making {
		return nil
	}
	if err := d.mark(); err != nil {
		return fault.Wrap(op, err)
	}
	next := d.Path("version.new")
	if err := WritePassing(next, []byte(strconv.Itoa(Format)+"\n"), 0o600); err != nil {
		return fault.Wrap(op, err)
	}
	if err := syncAll(append(d.subs(), d.path, d.Path(control))...); err != nil {
		return fault.Wrap(op, err)
	}
	if err := os.Rename(next, d.Path("version")); err != nil {
		return diskError(op, d.path, err)
	}
	if err := durable.SyncDir(d.path); err != nil {
		return fault.Wrap(op, err)
	}
	d.making, d.format = false, Format
	return nil
}

// subs returns the paths of the directory's subdirectories.
func (d *Dir) subs() []string {
	out := slices.Clone(subs)
	for i, sub := range out {
		out[i] = d.Path(sub)
	}
	return out
}

// syncAll syncs the file systems of paths, each once: a part of a data directory may be on
// a disk of its own. It also waits for what others have written there.
func syncAll(paths ...string) error {
	var done []uint64
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return diskError("datadir.syncAll", p, err)
		}
		var st unix.Stat_t
		if err = unix.Fstat(int(f.Fd()), &st); err == nil && !slices.Contains(done, uint64(st.Dev)) {
			done = append(done, uint64(st.Dev))
			err = unix.Syncfs(int(f.Fd()))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return diskError("datadir.syncAll", p, err)
		}
	}
	return nil
}
