package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAnUpperIsSettledWhateverIsInIt shows that whatever a task left in its upper layer, what it
// wrote can be made durable, and that a second time only what came since is looked for.
// TestPowerCuts in test/chaos tests that it is durable.
func TestAnUpperIsSettledWhateverIsInIt(t *testing.T) {
	uppers, root := t.TempDir(), t.TempDir()
	e, err := engine.Open(t.Context(), engine.Options{Root: root, Snapshots: t.TempDir(), Uppers: uppers})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	upper := filepath.Join(uppers, "t-1", "upper")
	write := func(name string) {
		t.Helper()
		p := filepath.Join(upper, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(what string) {
		t.Helper()
		if err := e.SettleUpper(t.Context(), wire.UpperRequest{Upper: "t-1/upper"}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	write("a/b.txt")
	settle("one file")
	if err := os.Symlink("/etc/passwd", filepath.Join(upper, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(upper, "a", "dangling")); err != nil {
		t.Fatal(err)
	}
	settle("links")
	for i := range 400 {
		write(fmt.Sprintf("many/%d", i))
	}
	settle("many files")
	write(strings.Repeat("d/", 1500) + "deep")
	settle("a deep chain")
	write("closed/x")
	if err := os.Chmod(filepath.Join(upper, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(upper, "closed"), 0o755) //nolint:errcheck // so that it can be removed
	settle("a closed folder")
	for _, bad := range []string{"../x", "/etc", "", "t-1/../../x"} {
		if err := e.SettleUpper(t.Context(), wire.UpperRequest{Upper: bad}); err == nil {
			t.Errorf("%q was settled", bad)
		}
	}
}
