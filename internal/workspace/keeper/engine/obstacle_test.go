package engine_test

import (
	"os"
	"slices"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestRestoreNamesWhatStays shows that what no checkpoint holds is never replaced, and that both
// the dry run and the restore name the paths that stay as they are because of it.
func TestRestoreNamesWhatStays(t *testing.T) {
	c := open(t)
	c.write("src/kept", "old\n")
	c.write("gone", "old\n")
	c.write("notes/a", "old\n")
	c.write("plain/inner/x", "old\n")
	for _, link := range []string{"deps", "away", "tracked"} {
		if err := os.Symlink("src", c.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	first := c.checkpoint("old")
	for _, p := range []string{"deps", "away", "tracked", "gone", "notes", "plain"} {
		if err := os.RemoveAll(c.path(p)); err != nil {
			t.Fatal(err)
		}
	}
	c.checkpoint("without") // what was tracked stays tracked, ignored or not
	c.write(".gitignore", "/deps/\n/gone\n/notes\n")
	c.write("deps/library/file", "fetched\n")
	c.write("gone", "ignored\n")
	c.write("notes", "ignored\n")
	c.write("tracked/file", "in a checkpoint soon\n")
	c.write("plain", "in a checkpoint soon\n")
	want := []string{"deps", "gone", "notes/a"}
	paths := func(list []wire.Conflict) (out []string) {
		for _, c := range list {
			if c.Reason == "" {
				t.Errorf("%s: no reason", c.Path)
			}
			out = append(out, string(c.Path))
		}
		slices.Sort(out)
		return out
	}
	dry := c.restore(wire.RestoreRequest{To: first.Commit.Commit, DryRun: true})
	if got := paths(dry.Conflicts); !slices.Equal(got, want) {
		t.Errorf("foreseen: %v; want %v", got, want)
	}
	done := c.restore(wire.RestoreRequest{ID: "r1", To: first.Commit.Commit})
	if got := paths(done.Applied.Conflicts); !slices.Equal(got, want) {
		t.Errorf("stayed: %v; want %v", done.Applied.Conflicts, want)
	}
	for p, text := range map[string]string{"deps/library/file": "fetched\n", "gone": "ignored\n", "notes": "ignored\n", "plain/inner/x": "old\n", "src/kept": "old\n"} {
		if got := c.read(p); got != text {
			t.Errorf("%s holds %q; want %q", p, got, text)
		}
	}
	for _, link := range []string{"away", "tracked"} {
		if to, err := os.Readlink(c.path(link)); err != nil || to != "src" {
			t.Errorf("%s: %q %v", link, to, err)
		}
	}
}
