package consistency

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
)

// What stands in the history in place of a file, be it a pipe that nobody writes
// to, is an answer at once: waking, and with it the end of choir, would wait for
// it without end.
func TestAHistoryThatIsNoFileIsNotWaitedFor(t *testing.T) {
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	c := Check{Dir: dir.Computer(contract.NewCID())}
	git := c.at("workspace/.git")
	for _, name := range []string{"refs/heads/main", "packed-refs", "objects/pack/a.idx"} {
		at := filepath.Join(git, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(at, 0o600); err != nil {
			t.Fatal(err)
		}
		ask := c.branch
		if strings.HasSuffix(name, ".idx") {
			ask = func() (string, error) { _, err := c.holds(strings.Repeat("a", 40)); return "", err }
		}
		if got, err := ask(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
}
