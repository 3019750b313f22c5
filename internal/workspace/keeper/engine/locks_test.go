package engine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocksOfAGitThatWasKilledHoldNobodyUp shows that locks in .git are removed. The engine is the
// only one that works there, so a lock that it finds was left by a git of its own that was killed,
// either with the engine or because a context ended.
func TestLocksOfAGitThatWasKilledHoldNobodyUp(t *testing.T) {
	for name, reopened := range map[string]bool{"it goes on": false, "it opens anew": true} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			task := c.begin("task-1")
			task.write("workspace/a", "one\n")
			task.tree()
			for i := range 30 {
				c.write("workspace/b", strings.Repeat("b", i))
				c.checkpoint("b")
			}
			id := c.Head()
			for _, lock := range []string{"objects/maintenance.lock", "objects/pack/multi-pack-index.lock", "index.lock", "packed-refs.lock", "refs/choir/task/task-1.lock"} {
				writeFile(t, c.path(".git/"+lock), "")
			}
			// A program that opens this pipe to read or to write would wait forever.
			if err := errors.Join(os.MkdirAll(c.path(".git/refs/choir"), 0o755), unix.Mkfifo(c.path(".git/refs/choir/logged.lock"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if reopened {
				c.reopen()
			}
			if err := c.MarkLogged(t.Context(), id); err != nil {
				t.Errorf("mark: %v", err)
			}
			if err := c.Drop(t.Context(), task.id); err != nil {
				t.Errorf("drop: %v", err)
			}
			if left, err := filepath.Glob(c.path(".git/refs/choir/task/*")); err != nil || len(left) > 0 {
				t.Errorf("the task's tree is still named: %v, %v", left, err)
			}
			if err := c.Maintain(t.Context()); err != nil {
				t.Errorf("maintain: %v", err)
			}
			if packs, err := filepath.Glob(c.path(".git/objects/pack/*.pack")); err != nil || len(packs) == 0 {
				t.Errorf("nothing was packed: %v", err)
			}
		})
	}
}

// TestWhatLiesInARefsWayIsNoRef puts a folder in the place of a ref, as git may leave one, and a
// file or a link in the place of the folder that holds the ref. Nothing may be written elsewhere.
func TestWhatLiesInARefsWayIsNoRef(t *testing.T) {
	for name, lay := range map[string]func(choir, out string) error{
		"empty folders": func(choir, _ string) error {
			return os.MkdirAll(filepath.Join(choir, "logged", "deep", "deeper"), 0o755)
		},
		"a file": func(choir, _ string) error { return os.WriteFile(choir, nil, 0o644) },
		"a link": func(choir, out string) error { return os.Symlink(out, choir) },
		"a link to nowhere": func(choir, out string) error {
			return os.Symlink(filepath.Join(out, "none"), choir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, out := open(t), t.TempDir()
			c.write("workspace/a", "one\n")
			id := c.checkpoint("one").Commit.Commit
			choir := c.path(".git/refs/choir")
			if err := errors.Join(os.RemoveAll(choir), lay(choir, out)); err != nil {
				t.Fatal(err)
			}
			if err := c.MarkLogged(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			got, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", c.opts.Root, "rev-parse", "refs/choir/logged").CombinedOutput()
			if err != nil || strings.TrimSpace(string(got)) != id {
				t.Errorf("git finds %s: %v", got, err)
			}
			if there, err := os.ReadDir(out); err != nil || len(there) > 0 {
				t.Errorf("elsewhere there is %v, %v", there, err)
			}
		})
	}
}
