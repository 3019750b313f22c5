package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestWhatTheWantedTreeIgnoresIsLeftAlone shows what happens to ignored files that were captured
// because their ignore file was removed: whatever brings the ignore file back leaves them alone and
// says so. Files that it does not ignore, and tracked ones that it does, are removed and restored.
func TestWhatTheWantedTreeIgnoresIsLeftAlone(t *testing.T) {
	for name, back := range map[string]func(first, gone string) wire.RestoreRequest{
		"a commit taken back": func(_, gone string) wire.RestoreRequest {
			return wire.RestoreRequest{Revert: []wire.Reverted{{Commit: gone}}}
		},
		"a restore": func(first, _ string) wire.RestoreRequest { return wire.RestoreRequest{To: first} },
		"a restore of a folder": func(first, _ string) wire.RestoreRequest {
			return wire.RestoreRequest{To: first, Paths: []wire.Path{"workspace/p"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			c.write("workspace/p/tracked.env", "one")
			c.checkpoint("tracked")
			c.write("workspace/p/.gitignore", "*.env\ndeps/\n")
			for _, p := range []string{"workspace/p/.env", "workspace/p/deps/a/b", "workspace/p/deps/c"} {
				c.write(p, "secret")
			}
			first := c.checkpoint("first").Commit.Commit
			for _, p := range []string{"workspace/p/.gitignore", "workspace/p/tracked.env"} {
				if err := os.Remove(c.path(p)); err != nil {
					t.Fatal(err)
				}
			}
			c.write("workspace/p/new", "new")
			gone := c.checkpoint("gone").Commit.Commit
			left(t, c, back(first, gone))
		})
	}
	t.Run("the undo of a restore", func(t *testing.T) {
		c := open(t)
		c.write("workspace/p/tracked.env", "old")
		c.write("workspace/p/new", "new")
		old := c.checkpoint("old").Commit.Commit
		if err := os.Remove(c.path("workspace/p/new")); err != nil {
			t.Fatal(err)
		}
		c.write("workspace/p/tracked.env", "one")
		c.write("workspace/p/.gitignore", "*.env\ndeps/\n")
		for _, p := range []string{"workspace/p/.env", "workspace/p/deps/a/b", "workspace/p/deps/c"} {
			c.write(p, "secret")
		}
		c.restore(wire.RestoreRequest{ID: "old", To: old})
		if err := os.Remove(c.path("workspace/p/tracked.env")); err != nil {
			t.Fatal(err)
		}
		left(t, c, wire.RestoreRequest{Undo: true})
	})
}

// left restores a state in which .env and deps are ignored and tracked.env is tracked, and checks
// what stays.
func left(t *testing.T, c *computer, req wire.RestoreRequest) {
	t.Helper()
	req.ID = "r"
	for _, req.DryRun = range []bool{true, false} {
		r := c.restore(req)
		if got, want := tellsOf(r), []string{"workspace/p/.gitignore", "workspace/p/new", "workspace/p/tracked.env"}; !slices.Equal(got, want) {
			t.Errorf("dry run %t: told are %q", req.DryRun, got)
		}
		want := "[{workspace/p/.env is ignored by workspace/p/.gitignore} {workspace/p/deps is ignored by workspace/p/.gitignore}]"
		if got := fmt.Sprint(r.Conflicts); got != want {
			t.Errorf("dry run %t: as staying are told %s", req.DryRun, got)
		}
	}
	for p, want := range map[string]string{".env": "secret", "deps/a/b": "secret", "deps/c": "secret", "tracked.env": "one"} {
		if got := c.read("workspace/p/" + p); got != want {
			t.Errorf("%s holds %q", p, got)
		}
	}
	if _, err := os.Lstat(c.path("workspace/p/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not ignored: %v", err)
	}
}
