package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// age makes every chunk look as if it had been stored long ago.
func (c *computer) age() {
	c.t.Helper()
	long := time.Now().Add(-30 * 24 * time.Hour)
	for _, name := range c.chunkFiles() {
		if err := os.Chtimes(name, long, long); err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
	}
}

func (c *computer) collect() wire.CollectReply {
	c.t.Helper()
	r, err := c.Collect(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// TestChunksAreCollected shows that old chunks of a version that nothing reaches are removed, that
// all others stay, and that only the new part of the history is walked.
func TestChunksAreCollected(t *testing.T) {
	c := open(t, lowThreshold)
	c.write("workspace/small", "small\n")
	c.checkpoint("nothing large")
	if r := c.collect(); r.Commits != 0 {
		t.Errorf("without chunks %d commits were walked", r.Commits)
	}
	for i := range 4 {
		c.write("workspace/big", noise(byte(i), 3<<20))
		c.checkpoint(fmt.Sprint(i))
	}
	k := c.begin("t1")
	k.write("workspace/big", noise(50, 3<<20))
	k.tree()
	before := len(c.chunkFiles())
	if r := c.collect(); r.Removed != 0 || r.Kept != before {
		t.Errorf("everything is needed, and %+v", r)
	}
	c.age()
	if r := c.collect(); r.Removed != 0 || r.Kept != before {
		t.Errorf("everything is needed, however old, and %+v", r)
	}
	if err := c.Drop(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	r := c.collect()
	if r.Removed == 0 || r.Bytes < 3<<20 || len(c.chunkFiles()) != before-r.Removed || r.Commits > 1 {
		t.Errorf("of what the task had: %+v", r)
	}
	c.scrubbed()
	// What a put acknowledged stays for as long as the trash names it when another put displaced
	// it, and forever when a program wrote over it.
	c.put("workspace/big", noise(59, 3<<20))
	c.put("workspace/big", noise(60, 3<<20))
	c.write("workspace/big", noise(61, 3<<20))
	c.checkpoint("another")
	c.age()
	if r := c.collect(); r.Removed != 0 || r.Commits > 5 {
		t.Errorf("puts that were overwritten: %+v", r)
	}
	both := len(c.chunkFiles())
	entries, err := filepath.Glob(c.path(".git/choir/trash/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		if err := os.RemoveAll(en); err != nil {
			t.Fatal(err)
		}
	}
	if r := c.collect(); r.Removed == 0 || both-r.Removed != len(c.chunkFiles()) {
		t.Errorf("a put that nothing tells of any more: %+v", r)
	}
	c.scrubbed()
	// A young chunk stays.
	k = c.begin("t2")
	k.write("workspace/big", noise(70, 3<<20))
	k.tree()
	c.age()
	k.write("workspace/big", noise(70, 3<<20)) // it is stored again, and so is young again
	k.tree()
	if err := c.Drop(t.Context(), "t2"); err != nil {
		t.Fatal(err)
	}
	if r := c.collect(); r.Removed != 0 {
		t.Errorf("what was stored just now: %+v", r)
	}
	c.scrubbed()
}

// TestAPutWhoseChunksWereCollected shows that a put works although its chunks are collected after
// they were stored and before anything names them, while the put waits for its turn.
func TestAPutWhoseChunksWereCollected(t *testing.T) {
	var c *computer
	collected := 0
	c = open(t, lowThreshold, func(o *engine.Options) {
		o.Crash = func(point string) {
			if point == "chunks.named" && collected == 0 {
				c.age()
				collected = c.collect().Removed
			}
		}
	})
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/f"}, strings.NewReader(noise(1, 2<<20))); err != nil {
		t.Fatal(err)
	}
	if collected == 0 || len(c.chunkFiles()) < collected {
		t.Errorf("%d were collected, and there are %d", collected, len(c.chunkFiles()))
	}
}

// TestNothingIsCollectedInTheDark shows that nothing is collected while a manifest can't be read,
// because nobody knows which chunks it names, and that a manifest whose bytes are also those of an
// ordinary file still counts.
func TestNothingIsCollectedInTheDark(t *testing.T) {
	c := open(t, lowThreshold)
	c.torn = true
	c.write("workspace/big", noise(1, 3<<20))
	c.checkpoint("big")
	c.write("aaa", stockGit(t, c.opts.Root, "cat-file", "blob", "HEAD:workspace/big.chunks.choir"))
	c.checkpoint("its manifest as a file, which comes first")
	c.reopen()
	c.age()
	before := len(c.chunkFiles())
	if r := c.collect(); r.Removed != 0 {
		t.Errorf("with a forged copy: %+v", r)
	}
	c.reopen()
	if err := os.Remove(c.object("HEAD:workspace/big.chunks.choir")); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Collect(t.Context()); err == nil || len(c.chunkFiles()) != before {
		t.Errorf("without the manifest: %+v, %v", r, err)
	}
}

// TestCollectingWhileOthersWork shows that whatever is stored, restored and published while chunks
// are collected is there in the end, however old its chunks look.
func TestCollectingWhileOthersWork(t *testing.T) {
	c := open(t, lowThreshold)
	c.write("workspace/big", noise(0, 2<<20))
	first := c.checkpoint("first")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	removed := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			names, err := filepath.Glob(c.path(".git/choir/chunks/??/*"))
			if err != nil {
				t.Error(err)
			}
			for _, n := range names {
				_ = os.Chtimes(n, time.Unix(0, 0), time.Unix(0, 0)) // the chunk may be gone
			}
			r, err := c.Collect(context.WithoutCancel(ctx))
			if err != nil {
				t.Error(err)
			}
			removed += r.Removed
		}
	})
	for i := range 40 {
		content := noise(byte(1+i%3), 2<<20)
		switch i % 4 {
		case 0:
			c.write("workspace/big", content)
		case 1:
			if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/put"}, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		case 2:
			k := c.begin(fmt.Sprint("t", i))
			k.write("workspace/task", noise(byte(10+i%8), 2<<20)) // the same contents again and again, of which half are dropped
			tree := k.tree()
			if i%8 == 2 {
				if _, err := c.publish(wire.PrepareRequest{ID: fmt.Sprint("p", i), Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "m"}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Drop(t.Context(), k.id); err != nil {
				t.Fatal(err)
			}
		case 3:
			c.restore(wire.RestoreRequest{ID: fmt.Sprint("r", i), To: first.Commit.Commit})
		}
		c.checkpoint(fmt.Sprint(i))
	}
	cancel()
	wg.Wait()
	if removed == 0 {
		t.Error("nothing was collected meanwhile, so nothing was tried")
	}
	c.scrubbed()
}

// TestAPushOfLargeFilesIsRefused shows that stock git refuses such a push, whatever folder it is
// run in.
func TestAPushOfLargeFilesIsRefused(t *testing.T) {
	c := open(t, lowThreshold)
	c.write("workspace/small", "small\n")
	c.write("workspace/notes.chunks.choir", "a user's own file of such a name\n")
	c.checkpoint("small")
	c.write(".git/hooks/post-checkout", "#!/bin/sh\nfalse\n")
	c.reopen()
	if _, err := os.Stat(c.path(".git/hooks/post-checkout")); !os.IsNotExist(err) {
		t.Errorf("a hook that nobody here wrote is still there: %v", err)
	}
	remote := filepath.Join(t.TempDir(), "remote.git")
	stockGit(t, t.TempDir(), "init", "-q", "--bare", remote)
	push := func(dir string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"push", "-q", remote}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := push(c.opts.Root, "main"); err != nil {
		t.Fatalf("a push without large files: %v\n%s", err, out)
	}
	c.write("workspace/a big one", noise(1, 2<<20))
	c.checkpoint("large")
	refused := func(args ...string) {
		t.Helper()
		for _, dir := range []string{c.opts.Root, c.path("workspace"), c.path(".git")} {
			out, err := push(dir, args...)
			if err == nil || !strings.Contains(out, "this push is refused") || !strings.Contains(out, "workspace/a big one\n") || strings.Contains(out, "notes") {
				t.Errorf("push %v from %s: %v\n%s", args, dir, err, out)
			}
		}
	}
	refused("main")
	refused("main:refs/heads/new")
	refused("HEAD:refs/tags/x")
	if err := os.Remove(c.path("workspace/a big one")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("without it")
	refused("main") // an earlier commit of the branch has it
	if out, err := push(c.opts.Root, "main~2:refs/heads/old", ":refs/heads/main"); err != nil {
		t.Errorf("a push of what came before it: %v\n%s", err, out)
	}
	if out, err := push(c.opts.Root, "main~1^{tree}:refs/tags/tree"); err == nil || !strings.Contains(out, "is no commit") {
		t.Errorf("a push of a bare tree: %v\n%s", err, out)
	}
}
