package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

func put(t *testing.T, d, name string) {
	t.Helper()
	p := filepath.Join(d, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
}

func there(d, name string) bool {
	b, err := os.ReadFile(filepath.Join(d, name))
	return err == nil && string(b) == name
}

// TestANewDirectoryCountsOnceItIsCommitted shows that what a start left uncommitted is set aside
// and begun again, and that files that a person had put there stay.
func TestANewDirectoryCountsOnceItIsCommitted(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "data")
	put(t, at, "keys/master.key")
	put(t, at, "computers/a note")
	theirs := []string{"keys/master.key", "computers/a note", "keys/given later"}
	ours := []string{"control.sqlite", "control.sqlite-wal", "parts", "keys/account.nk", "keys/api-token", "nats/jetstream/x", "blobs/c/x", "computers/c/state.sqlite"}
	d, err := datadir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // the second round finds what the first left
		for _, name := range append(ours, "keys/given later") {
			put(t, at, name)
		}
		if n == 0 {
			put(t, at, "blobs/c/only then")
		}
		if !d.Making() {
			t.Fatal("a directory that is new counts")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := datadir.OpenDamaged(at); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
			t.Errorf("for who looks: %v", err)
		}
		if d, err = datadir.Open(at); err != nil {
			t.Fatal(err)
		}
		for _, name := range ours {
			if there(at, name) {
				t.Errorf("%s counts", name)
			}
			if _, err := os.Stat(filepath.Join(at, "aside/unmade", name)); err != nil {
				t.Errorf("%s is lost: %v", name, err)
			}
		}
		if _, err := os.Stat(filepath.Join(at, "aside/unmade/blobs/c/only then")); err != nil {
			t.Errorf("start %d: what an earlier one moved aside is gone: %v", n, err)
		}
		for _, name := range theirs {
			if !there(at, name) {
				t.Errorf("%s, which a person put there, is gone", name)
			}
		}
	}
	for _, name := range ours {
		put(t, at, name)
	}
	if err := d.Commit(); err != nil || d.Making() {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err = datadir.Open(at); err != nil || d.Making() {
			t.Fatal(err)
		}
		for _, name := range ours[:2] {
			if !there(at, name) {
				t.Errorf("%s is gone, and was committed", name)
			}
		}
		if parts, err := d.Parts(); err != nil || !strings.Contains(strings.Join(parts, " "), "control.sqlite keys keys/account.nk") {
			t.Errorf("it has %q, %v", parts, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWhatDoesNotSayThatNothingCountsCounts shows that a directory is not begun again if its
// version file was emptied by a power cut beside existing data, or is damaged.
func TestWhatDoesNotSayThatNothingCountsCounts(t *testing.T) {
	t.Parallel()
	for content, with := range map[string][]string{
		"":                            {"control.sqlite"},
		"\x00\x00":                    {"nats/jetstream/x"},
		"making\n":                    {"control.sqlite"},
		"making\nsum 00\n":            {},
		"making\n\"keys/x\"\nsum 1\n": {"computers/c/state.sqlite"},
	} {
		at := t.TempDir()
		put(t, at, "version")
		if err := os.WriteFile(filepath.Join(at, "version"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range with {
			put(t, at, name)
		}
		if _, err := datadir.Open(at); !fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" {
			t.Errorf("version %q: %v", content, err)
		}
		for _, name := range with {
			if _, err := os.Stat(filepath.Join(at, name)); err != nil {
				t.Errorf("version %q: %v", content, err)
			}
		}
		if b, _ := os.ReadFile(filepath.Join(at, "version")); string(b) != content {
			t.Errorf("version %q was changed to %q", content, b)
		}
	}
	// If there is nothing of choir's, the power cut came before anything was made.
	at := t.TempDir()
	if err := os.WriteFile(filepath.Join(at, "version"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := datadir.Open(at)
	if err != nil || !d.Making() {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
