package consistency

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"choir.dev/choiros/internal/sandbox/local"
)

// historyAt opens the volumes of a computer's directory that contains a history.
func historyAt(t *testing.T, dir string) *local.Volumes {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "workspace/.git/refs/heads"), 0o700); err != nil {
		t.Fatal(err)
	}
	v, err := local.OpenVolumes(local.VolumesOptions{Dir: dir, OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// TestAHistoryThatIsNoFileIsNotWaitedFor shows that something else in the place of a file of the
// history, such as a pipe without a writer, is reported at once. Otherwise waking would wait for it
// without end, and choir could not be stopped.
func TestAHistoryThatIsNoFileIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	history, err := historyAt(t, dir).History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	git := filepath.Join(dir, "workspace/.git")
	for _, name := range []string{"refs/heads/main", "packed-refs", "objects/pack/a.idx"} {
		at := filepath.Join(git, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(at, 0o600); err != nil {
			t.Fatal(err)
		}
		ask := branch
		if strings.HasSuffix(name, ".idx") {
			ask = func(h fs.FS) (string, error) { _, err := holds(h, strings.Repeat("a", 40)); return "", err }
		}
		if got, err := ask(history); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
}
