package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAPlanThatCantBeReadCostsThatPlanOnly shows that a plan that can no longer be read, under way
// or finished, stops nobody: the tree can be opened and changed, what the plan had replaced is in
// the trash, and the publish can be asked for again.
func TestAPlanThatCantBeReadCostsThatPlanOnly(t *testing.T) {
	t.Parallel()
	harm := map[string]func(file string) error{
		"cut":   func(file string) error { return os.Truncate(file, 7) },
		"empty": func(file string) error { return os.Truncate(file, 0) },
		"other": func(file string) error { return os.WriteFile(file, []byte(`["something","else"]`), 0o644) },
		"a folder": func(file string) error {
			return errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "x"), 0o755))
		},
	}
	for name, f := range harm {
		for _, file := range []string{"plan.json", "result.json", "plan.json in the journal"} {
			file, mended := strings.CutSuffix(file, " in the journal")
			t.Run(fmt.Sprint(file, " is ", name, ", in the journal: ", mended), func(t *testing.T) {
				c := open(t)
				for _, p := range []string{"a", "b", "c"} {
					c.write("workspace/"+p, "old "+p+"\n")
				}
				k := c.begin("t1")
				for _, p := range []string{"a", "b", "c"} {
					k.write("workspace/"+p, "new "+p+"\n")
				}
				tree := k.tree()
				if file == "result.json" {
					if _, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "the task"}}); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				c.Engine = nil
				if file == "plan.json" && !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: "apply.exchanged", Nth: 2, Do: "publish", Base: k.base, Task: tree.Commit}) {
					t.Fatal("the child was not killed")
				}
				work := filepath.Join(c.opts.Root, ".git", "choir")
				if err := f(filepath.Join(work, "publish", "p", file)); err != nil {
					t.Fatal(err)
				}
				if !mended {
					if err := os.Remove(filepath.Join(work, "journal")); err != nil {
						t.Fatal(err)
					}
				}
				c.reopen()
				done, err := c.Unlogged(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if mended { // the record is as it was, and the plan is continued
					if len(done) != 1 || done[0].Publish != "p" || c.read("workspace/c") != "new c\n" {
						t.Errorf("what is done is %+v, and c holds %q", done, c.read("workspace/c"))
					}
					return
				}
				c.write("workspace/d", "by the user\n")
				c.checkpoint("after it")
				if _, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "the task"}}); err != nil {
					t.Fatal(err)
				}
				for p, want := range map[string]string{"a": "new a\n", "b": "new b\n", "c": "new c\n", "d": "by the user\n"} {
					if got := c.read("workspace/" + p); got != want {
						t.Errorf("%s holds %q", p, got)
					}
				}
				if lost, err := filepath.Glob(filepath.Join(work, "unreadable", "p-*")); err != nil || len(lost) == 0 {
					t.Errorf("the plan is not kept: %v, %v", lost, err)
				}
				if r, err := c.Scrub(t.Context(), wire.ScrubRequest{}); err != nil || len(r.Aside) == 0 || r.Aside[0].Publish != "p" {
					t.Errorf("a scrub tells of %+v, %v", r.Aside, err)
				}
				if file == "plan.json" && !inTrash(t, work, "old a\n") {
					t.Error("what it had replaced is not in the trash")
				}
			})
		}
	}
}

func inTrash(t *testing.T, work, text string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(work, "trash", "*", "content"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), text) {
			return true
		}
	}
	return false
}
