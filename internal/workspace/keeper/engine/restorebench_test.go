package engine_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// manyFiles is a computer with this many files in folders of 50, to which nobody else can write.
func manyFiles(t testing.TB, files int) *computer {
	c := open(t)
	c.still = "s"
	for i := range files {
		p := c.path(fmt.Sprintf("workspace/d%d/d%d/f%d", i/2500, i/50, i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(fmt.Sprint(i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // files of this age need not be read again
	return c
}

// backAndForth writes a file and takes that back in each of the ways that there are, each of them
// with a dry run first.
func backAndForth(c *computer, id string) {
	c.t.Helper()
	const p = "workspace/d0/d1/f60"
	first := c.checkpoint("first " + id).Commit.Commit
	if _, err := c.Write(c.ctx(), wire.WriteRequest{Path: p}, strings.NewReader("other "+id)); err != nil {
		c.t.Fatal(err)
	}
	second := c.checkpoint("second " + id).Commit.Commit
	for n, req := range []wire.RestoreRequest{
		{To: first},
		{Undo: true},
		{To: first, Paths: []wire.Path{p}},
		{To: second},
		{Revert: []wire.Reverted{{Commit: second}}},
	} {
		req.ID = fmt.Sprintf("%s-%d", id, n)
		for _, req.DryRun = range []bool{true, false} {
			if r := c.restore(req); len(r.Changes) != 1 || len(r.Conflicts) != 0 {
				c.t.Fatalf("restore %d changes %+v and keeps %+v", n, r.Changes, r.Conflicts)
			}
		}
	}
	if d, err := c.Diff(c.ctx(), wire.DiffRequest{From: second}); err != nil || len(d.Changes) != 1 {
		c.t.Fatalf("the diff is %+v, %v", d.Changes, err)
	}
}

// BenchmarkRestore measures what restoring one file costs the keeper, in each of the ways and with
// the dry run before it, in trees of different sizes.
func BenchmarkRestore(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			c := manyFiles(b, files)
			backAndForth(c, "warm")
			before := usedBy(b)
			n := 0
			for b.Loop() {
				n++
				backAndForth(c, fmt.Sprint("r", n))
			}
			after := usedBy(b)
			b.ReportMetric(float64(after.cpu-before.cpu)/float64(n)/1e6, "cpu-ms/op")
			b.ReportMetric(float64(after.read-before.read)/float64(n)/1e3, "kB-read/op")
			b.ReportMetric(float64(after.calls-before.calls)/float64(n), "reads/op")
			b.ReportMetric(float64(after.made-before.made)/float64(n)/1e3, "kB-alloc/op")
		})
	}
}

// used is what a process, and the programs that it started and that have ended, consumed.
type used struct{ cpu, read, calls, made int64 }

func usedBy(t testing.TB) (u used) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			t.Fatal(err)
		}
		u.cpu += r.Utime.Nano() + r.Stime.Nano()
	}
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		fmt.Sscanf(string(line), "rchar: %d", &u.read)
		fmt.Sscanf(string(line), "syscr: %d", &u.calls)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.made = int64(m.TotalAlloc)
	return u
}

// TestARestoreCostsWhatChanged shows that in a tree ten times as large restoring one file reads no
// more files, and takes no more room than its few larger folders need.
func TestARestoreCostsWhatChanged(t *testing.T) {
	// A pool that a collection empties, or a race detector, which drops a quarter of what is given
	// back, is filled anew in whichever round meets it: no round is measured with a collection, and
	// the room taken may be twice as much, where a tree that is read whole takes ten times as much.
	cost := func(files int) used {
		c := manyFiles(t, files)
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		first := c.checkpoint("first").Commit.Commit
		c.write("workspace/new", "new")
		c.still = "after"
		c.checkpoint("second") // this writes the index that people's own git goes on from
		c.restore(wire.RestoreRequest{ID: "warm", To: first})
		least := used{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
		for i := range 5 { // work that happens only now and then, such as filling a pool anew, does not count for each
			before := usedBy(t)
			backAndForth(c, fmt.Sprint("round-", i))
			after := usedBy(t)
			least = used{min(least.cpu, after.cpu-before.cpu), min(least.read, after.read-before.read), min(least.calls, after.calls-before.calls), min(least.made, after.made-before.made)}
		}
		return least
	}
	small, large := cost(500), cost(5000)
	t.Logf("small %+v, large %+v", small, large)
	for _, n := range []struct {
		what         string
		small, large int64
		times        float64
	}{{"bytes read", small.read, large.read, 1.5}, {"reads", small.calls, large.calls, 1.5}, {"bytes of memory", small.made, large.made, 2}} {
		if float64(n.large) > float64(n.small)*n.times {
			t.Errorf("going back takes %d %s in a small tree, and %d in a large one", n.small, n.what, n.large)
		}
	}
}
