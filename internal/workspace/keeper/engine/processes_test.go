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

// gitBeside has an engine use a git that notes what it is asked for.
func gitBeside(t *testing.T) (opt func(*engine.Options), asked func() []string) {
	t.Helper()
	dir := t.TempDir()
	log, program := filepath.Join(dir, "asked"), filepath.Join(dir, "git")
	writeFile(t, program, fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\nexec git \"$@\"\n", log))
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(o *engine.Options) { o.Git = program }, func() []string {
		raw, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(raw)), "\n")
	}
}

// lifeOfATask does what a task's attempt asks of the keeper, from its base to
// where it is dropped.
func lifeOfATask(c *computer, id string) {
	c.t.Helper()
	ctx := c.t.Context()
	must := func(_ any, err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	k := c.begin(id)
	must(c.Snapshot(ctx, k.base))
	must(c.Status(ctx))
	k.write("workspace/"+id+".txt", "by "+id+"\n")
	tree := k.tree()
	merged, err := c.Prepare(ctx, wire.PrepareRequest{ID: "m-" + id, Base: k.base, Tree: tree.Commit, Task: id})
	must(nil, err)
	must(c.Diff(ctx, wire.DiffRequest{A: k.base, B: tree.Commit}))
	must(c.Snapshot(ctx, merged.Commit))
	k.publish()
	must(nil, c.Logged(ctx, "p-"+id))
	must(nil, c.Drop(ctx, id))
	must(nil, c.ReleaseSnapshots(ctx, nil))
}

// TestATaskStartsOneGit: what a task costs is not in the start of processes. One
// compares the lines of what it changed.
func TestATaskStartsOneGit(t *testing.T) {
	opt, asked := gitBeside(t)
	c := open(t, opt)
	for i := range 30 {
		c.write(fmt.Sprintf("workspace/d%d/f.txt", i), "x\n")
	}
	lifeOfATask(c, "t1")
	asked()
	lifeOfATask(c, "t2")
	if got := asked(); len(got) != 1 || !strings.HasPrefix(got[0], "diff-tree ") {
		t.Errorf("a task had git started for:\n%s", strings.Join(got, "\n"))
	}
	if got := c.read("workspace/t2.txt"); got != "by t2\n" {
		t.Errorf("and published %q", got)
	}
}
