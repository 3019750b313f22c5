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

// making is how the file version begins of a directory whose first start has not
// come to its end: nobody was told of anything in it, so nothing in it counts. What
// lay there before is listed behind it, for that is somebody else's.
const making = "making\n"

// unmade is where a start puts what one before it had begun to make.
const unmade = "unmade"

// made are the files of keys that a first start makes.
var made = []string{"operator.nk", "system.nk", "account.nk", "master.key", "secrets.sealed", "api-token"}

// Making says that nothing in the directory counts yet: what is new in it need not
// be synced by whoever makes it, for Commit does.
func (d *Dir) Making() bool {
	d.marking.Lock()
	defer d.marking.Unlock()
	return d.making
}

// BeingMade says that a first start on the directory at a path has not come to its
// end, as far as that can be read.
func BeingMade(path string) bool {
	b, err := os.ReadFile(filepath.Join(path, "version"))
	return err == nil && bytes.HasPrefix(b, []byte(making))
}

// begin begins the making of a directory that is new. What says so is on disk
// before anything else is there.
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

// found lists what lies where a first start makes something.
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

// remake begins anew what a start before this one had begun and not committed, as its
// version says. What that had made is moved to unmade, what lay there before it stays.
func (d *Dir) remake(version string) error {
	const op = "datadir.Open"
	body, sum, ok := strings.Cut(version, "sum ")
	want := sha256.Sum256([]byte(body))
	if !ok || strings.TrimSpace(sum) != hex.EncodeToString(want[:]) {
		return fault.New(op, fault.Damaged, "Run choir recover, restore that file from a backup, or start with another --data.",
			fmt.Errorf("%s does not hold a version number", d.Path("version")))
	}
	// Whoever wrote it may have been ended before it was on disk.
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
	now = append(now, partsFile, control, control+"-wal", control+"-shm")
	// What is there already stays: it is of a start that died on its way here, or of a
	// directory that was copied while it was committed, and may count. What was made since
	// counts nowhere.
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

// Commit makes everything in a directory that is new durable at once, and has it
// count from then on. Whoever made something without syncing it syncs what comes
// later. Of a directory that counts already it does nothing.
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

// subs are the paths of the directory's directories.
func (d *Dir) subs() []string {
	out := slices.Clone(subs)
	for i, sub := range out {
		out[i] = d.Path(sub)
	}
	return out
}

// syncAll makes all that is on the file systems of paths durable, each once: a part
// of a data directory may lie on a disk of its own. It waits for everybody's writes
// to them.
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
