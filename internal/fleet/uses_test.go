package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatADataDirectoryTakesIsTold measures each computer, its history apart, and all of it.
func TestWhatADataDirectoryTakesIsTold(t *testing.T) {
	data := t.TempDir()
	for name, mb := range map[string]int{"nats/a": 1, "blobs/a": 2, "computers/one/workspace/a": 3, "computers/one/workspace/.git/a": 4, "computers/two/snapshots/a": 5} {
		file := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, mb<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := uses(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range found {
		got[f.ID], _, _ = strings.Cut(f.Detail, " are")
	}
	for id, want := range map[string]string{"storage": "15 MB", "storage one": "7 MB, of which 4 MB", "storage two": "5 MB, of which 0 MB"} {
		if got[id] != want {
			t.Errorf("%s: %q, want %q", id, got[id], want)
		}
	}
	if found, err := uses(t.Context(), t.TempDir()); err != nil || len(found) != 1 {
		t.Errorf("an empty one: %v, %v", found, err)
	}
}
