package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
		if _, err := e.SettleUpper(t.Context(), wire.SettleUpperRequest{Upper: "t-1/upper"}); err != nil {
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
		if _, err := e.SettleUpper(t.Context(), wire.SettleUpperRequest{Upper: bad}); err == nil {
			t.Errorf("%q was settled", bad)
		}
	}
}

// TestWhatAnUpperTouchesIsSeen shows that whatever a task's upper changes of a path, or beneath or
// above it, the answer of SettleUpper says so, and that it does not where the upper changes others.
func TestWhatAnUpperTouchesIsSeen(t *testing.T) {
	uppers := t.TempDir()
	e, err := engine.Open(t.Context(), engine.Options{Root: t.TempDir(), Snapshots: t.TempDir(), Uppers: uppers})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	folder := func(at string) error { return os.MkdirAll(at, 0o755) }
	file := func(at string) error { return os.WriteFile(at, nil, 0o644) }
	marked := func(make func(string) error, mark string) func(string) error {
		return func(at string) error {
			if err := make(at); err != nil {
				return err
			}
			return unix.Setxattr(at, mark, []byte("y"), 0)
		}
	}
	for i, c := range []struct {
		about, at string
		make      func(at string) error
		want      bool
	}{
		{"nothing", "", folder, false},
		{"another file", "a.txt", file, false},
		{"a file whose name begins alike", "desks", file, false},
		{"a file beside", "art/system/other.json", file, false},
		{"a parent alone", "art/system", folder, false},
		{"the file", "art/system/theme.json", file, true},
		{"a folder", "desk", folder, true},
		{"a file beneath it", "desk/src/main.tsx", file, true},
		{"the mark of a removal in its place", "desk", marked(file, "user.overlay.whiteout"), true},
		{"a file in a parent's place", "art", file, true},
		{"a link in a parent's place", "art/system", func(at string) error { return os.Symlink("/", at) }, true},
		{"a parent that hides what was there", "art/system", marked(folder, "user.overlay.opaque"), true},
		{"a parent's parent that does", "art", marked(folder, "user.overlay.opaque"), true},
	} {
		upper := fmt.Sprintf("t-%d/upper", i)
		at := filepath.Join(uppers, upper, c.at)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.make(at); err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		got, err := e.SettleUpper(t.Context(), wire.SettleUpperRequest{Upper: upper, Paths: []wire.Path{"desk", "art/system/theme.json"}})
		if err != nil || got.Touched != c.want {
			t.Errorf("%s: touched %v, %v; want %v", c.about, got.Touched, err, c.want)
		}
	}
	for _, bad := range []wire.Path{"../x", "/etc", ""} {
		if _, err := e.SettleUpper(t.Context(), wire.SettleUpperRequest{Upper: "t-0/upper", Paths: []wire.Path{bad}}); err == nil {
			t.Errorf("%q was looked for", bad)
		}
	}
}
