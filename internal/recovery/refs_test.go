package recovery_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/recovery"
)

// TestABranchThatCantBeReadKeepsNobodyElseAsleep: whatever is in a branch's place, only its
// own computer is damaged.
func TestABranchThatCantBeReadKeepsNobodyElseAsleep(t *testing.T) {
	for name, c := range map[string]struct {
		lay  func(branch string) error
		says string
	}{
		"a pipe":                {func(b string) error { return unix.Mkfifo(b, 0o600) }, "it is p"},
		"a folder":              {func(b string) error { return os.Mkdir(b, 0o700) }, "it is d"},
		"a link that leads on":  {func(b string) error { return os.Symlink("main", b) }, "it can't be read"},
		"a link that leads out": {func(b string) error { return os.Symlink("/etc/hostname", b) }, "it can't be read"},
		"a file in its folder's place": {func(b string) error {
			if err := os.Remove(filepath.Dir(b)); err != nil {
				return err
			}
			return os.WriteFile(filepath.Dir(b), nil, 0o600)
		}, "it can't be read"},
		"a pipe in the place of the packed ones": {func(b string) error {
			return unix.Mkfifo(filepath.Join(b, "..", "..", "..", "packed-refs"), 0o600)
		}, "it is p"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := contract.NewCID(), contract.NewCID()
			dir := fill(t, a, b)
			branch := dir.Computer(a, "workspace", ".git", "refs", "heads", "main")
			if err := os.MkdirAll(filepath.Dir(branch), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.lay(branch); err != nil {
				t.Fatal(err)
			}
			r, err := recovery.Inspect(t.Context(), dir)
			if err != nil {
				t.Fatalf("nothing can be opened: %v", err)
			}
			if got := r.Of(a); !r.Usable() || len(got) != 1 || !strings.Contains(got[0].What, c.says) {
				t.Errorf("of its computer: %v", got)
			}
			if got := r.Of(b); len(got) > 0 {
				t.Errorf("of the other: %v", got)
			}
		})
	}
}
