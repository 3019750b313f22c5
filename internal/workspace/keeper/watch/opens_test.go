package watch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/watch"
)

// TestWhoGotANameMayBeOpen shows that a file that is open counts as open at a name that it gets
// later, because whoever has it open does not open it again, and that each name is reported until
// it is forgiven.
func TestWhoGotANameMayBeOpen(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	for _, name := range []string{"a", "b", "read"} {
		if err := os.WriteFile(at(name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := watch.New(10)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	fd, err := unix.Open(root, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, ok := w.Opened(); ok {
		t.Error("what nobody watched is known")
	}
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	w.Dir(fd, ".", watch.Scanned)
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	told := func(want ...string) {
		t.Helper()
		w.Note()
		got, ok := w.Opened()
		slices.Sort(got)
		if !ok || !slices.Equal(got, want) {
			t.Errorf("opened: %q, %t; want %q", got, ok, want)
		}
	}
	told()
	if _, err := os.ReadFile(at("read")); err != nil {
		t.Fatal(err)
	}
	told("read")
	if err := os.Rename(at("a"), at("moved")); err != nil {
		t.Fatal(err)
	}
	told("moved", "read")
	if err := os.Link(at("b"), at("link")); err != nil {
		t.Fatal(err)
	}
	told("link", "moved", "read")
	w.Forgive()
	told()
}
