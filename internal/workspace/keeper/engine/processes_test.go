package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// gitBeside has an engine use a git that records its arguments.
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

// lifeOfATask does what a task's attempt asks of the keeper, from its base until it is dropped.
func lifeOfATask(c *computer, id string) {
	c.t.Helper()
	ctx := c.ctx()
	must := func(_ any, err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	k := c.begin(id)
	must(c.Snapshot(ctx, k.base))
	must(c.Ignored(ctx))
	k.write("workspace/"+id+".txt", "by "+id+"\n")
	tree := k.tree()
	merged, err := c.Prepare(ctx, wire.PrepareRequest{ID: "m-" + id, Base: k.base, Tree: tree.Commit, Task: id})
	must(nil, err)
	must(c.Diff(ctx, wire.DiffRequest{From: k.base, To: tree.Commit}))
	must(c.Snapshot(ctx, merged.Commit))
	_, err = c.publish(wire.PrepareRequest{ID: "p-" + id, Base: k.base, Tree: tree.Commit, Task: id, Note: wire.Note{Message: "task " + id, Verified: "pass"}})
	must(nil, err)
	must(nil, c.Logged(ctx, "p-"+id))
	must(nil, c.Drop(ctx, id))
	must(nil, c.ReleaseSnapshots(ctx, nil))
}

// TestATaskStartsOneGit shows that a task starts one git process, which compares the lines of what
// it changed, so that a task's cost is not the start of processes.
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

// aTasksSyncs is how often a task that adds one file may wait for the disk when nobody could write
// beside it: 6 entries of the journal (its tree was read, merged, prepared, begun, staged, done),
// the staged file and three folders, the live folder, and the branch with its folder. When somebody
// could write, a checkpoint syncs again every file that is too new to be known by its times.
const aTasksSyncs, aTasksSyncsBeside = 13, 30

// TestATaskSyncsFewTimes counts what the second of two tasks waits for.
func TestATaskSyncsFewTimes(t *testing.T) {
	syncsAtMost(t, "task", aTasksSyncs)
	syncsAtMost(t, "task beside others", aTasksSyncsBeside)
}

// TestARemovalAndAMoveSyncOnce looks at what the second of two removals, of files that were
// put a moment before, and of two moves from folder to folder waits for: the journal.
func TestARemovalAndAMoveSyncOnce(t *testing.T) {
	for _, what := range []string{"removal", "removal of a version", "move"} {
		trace := syncsAtMost(t, what, 1)
		if !regexp.MustCompile(`fsync\(\d+<[^>]*/\.git/choir/journal>`).MatchString(trace) {
			t.Errorf("the journal is not synced:\n%s", trace)
		}
	}
}

// TestAPutSyncsFewTimes checks what the second of two puts waits for: the content of the file, and
// the journal. One that names what it displaces waits for nothing else.
func TestAPutSyncsFewTimes(t *testing.T) {
	for _, put := range []string{"put", "put over a version"} {
		trace := syncsAtMost(t, put, 2)
		for _, what := range []string{"trash/[^/]+/content", "journal"} {
			if !regexp.MustCompile(`fsync\(\d+<[^>]*/\.git/choir/` + what + `>`).MatchString(trace) {
				t.Errorf("%s is not synced:\n%s", what, trace)
			}
		}
	}
}

// syncsAtMost has a child do something twice, counts how often the second time waits for the disk,
// and returns the trace of that.
func syncsAtMost(t *testing.T, what string, most int) (trace string) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	file := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", file, "-e", "trace=fsync,fdatasync,syncfs,sync,unlink,unlinkat", os.Args[0], "-test.run=^TestSyncsChild$")
	cmd.Env = append(os.Environ(), syncsEnv+"="+what)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`(?m)^.*unlink.*"/nowhere/mark".*$`).Split(string(b), -1)
	if len(parts) != 3 {
		t.Fatalf("%d parts are traced:\n%s", len(parts), b)
	}
	syncs := len(regexp.MustCompile(`(?m)^\d+ +(fsync|fdatasync|syncfs|sync)\(`).FindAllString(parts[1], -1))
	t.Logf("%d syncs", syncs)
	if syncs == 0 || syncs > most {
		t.Errorf("a %s synced %d times; want at most %d:\n%s", what, syncs, most, parts[1])
	}
	return parts[1]
}

const syncsEnv = "KEEPER_SYNCS"

// TestSyncsChild is the process that the tests above follow.
func TestSyncsChild(t *testing.T) {
	what := os.Getenv(syncsEnv)
	if what == "" {
		t.Skip("runs in a process of its own")
	}
	c := open(t)
	if what == "task" {
		c.still = "s"
	}
	c.write("workspace/f.txt", "x\n")
	do := func(id string) { lifeOfATask(c, id) }
	if what == "put" {
		do = func(id string) { c.put("workspace/f.txt", id) }
	}
	if what == "put over a version" {
		do = func(id string) {
			is, err := c.Stat(c.ctx(), "workspace/f.txt")
			must(t, err)
			_, err = c.Write(c.ctx(), wire.WriteRequest{Path: "workspace/f.txt", If: is.ID}, strings.NewReader(id))
			must(t, err)
		}
	}
	if strings.HasPrefix(what, "removal") {
		for _, id := range []string{"t1", "t2"} {
			c.put("workspace/"+id, id)
		}
		do = func(id string) {
			req := wire.RemoveRequest{Path: wire.Path("workspace/" + id)}
			if what != "removal" {
				is, err := c.Stat(c.ctx(), string(req.Path))
				must(t, err)
				req.If = is.ID
			}
			_, err := c.Remove(c.ctx(), req)
			must(t, err)
		}
	}
	if what == "move" {
		from := wire.Path("workspace/f.txt")
		do = func(id string) {
			to := wire.Path("workspace/" + id + "/f.txt")
			if _, err := c.Move(c.ctx(), wire.MoveRequest{From: from, To: to}); err != nil {
				t.Fatal(err)
			}
			from = to
		}
	}
	do("t1")
	mark := func() { _ = unix.Unlink("/nowhere/mark") } // the trace shows this call
	mark()
	do("t2")
	mark()
}
