package datadir_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

func TestOneOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data")
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(path); !fault.Is(err, fault.InUse) || fault.HintOf(err) == "" {
		t.Errorf("second Open: got %v; want in_use with a hint", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = datadir.Open(path)
	if err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	defer d.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode = %v, %v; want 0700", st.Mode(), err)
	}
}

// TestADataDirectoryIsItsOwnersAlone shows that an existing directory is closed to others if its
// owner left it open, and is refused if another user made it, because that user's keys would be
// used.
func TestADataDirectoryIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o755, 0o777, 0o770, 0o705} {
		path := t.TempDir()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		d, err := datadir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%v became %v, %v", mode, st.Mode(), err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	choirtest.NotInBox(t, "file of another user")
	theirs := "/" // the root directory belongs to nobody but root
	if os.Geteuid() == 0 {
		theirs = t.TempDir()
		if err := os.Chown(theirs, 61234, 61234); err != nil {
			t.Fatal(err)
		}
	}
	for _, open := range []func(string) (*datadir.Dir, error){datadir.Open, datadir.OpenDamaged} {
		d, err := open(theirs)
		if err == nil {
			d.Close() // an error is expected, so there should be nothing to close
		}
		if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "another user") {
			t.Errorf("another user's: %v", err)
		}
	}
}

// TestAnOwnersLastChild: a child that choir was starting when it was killed holds the lock for some
// moments longer.
func TestAnOwnersLastChild(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	lock, err := os.OpenFile(filepath.Join(path, "choir.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.WriteString("1 1\n"); err != nil { // no process has this id
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "0.2")
	child.ExtraFiles = []*os.File{lock}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]fault.Code{"99\n": fault.Newer, "x": fault.Damaged, "0": fault.Damaged} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "version"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := datadir.Open(path); !fault.Is(err, want) {
			t.Errorf("version %q: got %v; want %s", content, err, want)
		}
		if b, _ := os.ReadFile(filepath.Join(path, "version")); string(b) != content {
			t.Errorf("version %q was changed to %q", content, b)
		}
	}
}

func TestWriteFileLeavesNothingBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, s := range []string{"one", "two"} {
		if err := datadir.WriteFile(filepath.Join(dir, "f"), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := os.ReadDir(dir)
	b, _ := os.ReadFile(filepath.Join(dir, "f"))
	if len(entries) != 1 || strings.TrimSpace(string(b)) != "two" {
		t.Errorf("got %d entries, content %q", len(entries), b)
	}
}
