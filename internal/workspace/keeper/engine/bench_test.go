package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// benchFiles is the size of the tree that checkpoints are measured on.
const benchFiles = 10_000

func benchTree(b *testing.B, root string) {
	b.Helper()
	for i := range benchFiles {
		writeFile(b, filepath.Join(root, fmt.Sprintf("workspace/d%02d/e%d/f%d.txt", i/100, i/10%10, i)), fmt.Sprintf("file %d\n%0200d\n", i, i))
	}
}

// BenchmarkCheckpoint measures a checkpoint of 10,000 files of which one changed, alternating with
// `git add -A && git commit` on an equal tree with the same durability, and reports the ratio.
func BenchmarkCheckpoint(b *testing.B) {
	dir := b.TempDir()
	opts := engine.Options{Root: filepath.Join(dir, "live"), Snapshots: filepath.Join(dir, "s"), Uppers: filepath.Join(dir, "u")}
	raw := filepath.Join(dir, "raw")
	benchTree(b, opts.Root)
	benchTree(b, raw)
	e, err := engine.Open(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	git := func(args ...string) {
		cmd := exec.CommandContext(b.Context(), "git", append([]string{"-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "gc.auto=0", "-c", "user.name=b", "-c", "user.email=b@example.invalid"}, args...)...)
		cmd.Dir = raw
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "all")
	checkpoint := func(i int) {
		if _, err := e.Checkpoint(b.Context(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: fmt.Sprint(i)}}); err != nil {
			b.Fatal(err)
		}
	}
	checkpoint(-2)
	checkpoint(-1)
	var ours, theirs time.Duration
	i := 0
	for b.Loop() {
		name := fmt.Sprintf("workspace/d%02d/e3/f%d.txt", i%100, i%100*100+30)
		i++
		writeFile(b, filepath.Join(opts.Root, name), fmt.Sprintf("change %d\n", i))
		start := time.Now()
		checkpoint(i)
		ours += time.Since(start)
		writeFile(b, filepath.Join(raw, name), fmt.Sprintf("change %d\n", i))
		start = time.Now()
		git("add", "-A")
		git("commit", "-qm", "x")
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(i)/1000, "ms/checkpoint")
	b.ReportMetric(float64(theirs.Microseconds())/float64(i)/1000, "ms/git")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}

// BenchmarkSnapshot measures a snapshot of 10,000 files when there is one that differs from it in
// one file.
func BenchmarkSnapshot(b *testing.B) {
	c := open(b)
	benchTree(b, c.opts.Root)
	first := c.checkpoint("first")
	if _, err := c.Snapshot(b.Context(), first.Commit.Commit); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		c.write("workspace/x", fmt.Sprint(i))
		next := c.checkpoint("next")
		b.StartTimer()
		if _, err := c.Snapshot(b.Context(), next.Commit.Commit); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.ReleaseSnapshots(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkScan measures a checkpoint of 50,000 empty files of which none changed, alternating with
// git's own scan of an equal tree, and reports the ratio.
func BenchmarkScan(b *testing.B) {
	c := open(b)
	const files = 50_000
	for i := range files {
		writeFile(b, c.path(fmt.Sprintf("workspace/d%d/f%d", i/1000, i)), "")
	}
	raw := b.TempDir()
	git := func(args ...string) {
		cmd := exec.CommandContext(b.Context(), "git", append([]string{"-c", "gc.auto=0"}, args...)...)
		cmd.Dir = raw
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.CommandContext(b.Context(), "cp", "-r", c.path("workspace"), raw).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	git("init", "-q")
	git("add", "-A")
	c.checkpoint("all")
	time.Sleep(100 * time.Millisecond) // files of this age are not read again
	c.checkpoint("again")
	var ours, theirs time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		c.checkpoint("none")
		ours += time.Since(start)
		start = time.Now()
		git("status", "--short")
		theirs += time.Since(start)
		n++
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(n)/1000, "ms/scan")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}
