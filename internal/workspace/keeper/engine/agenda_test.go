package engine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// publishes has n tasks write one file each, and confirms to the keeper that the host knows of
// them.
func (c *computer) publishes(n int) {
	c.t.Helper()
	for i := range n {
		base := c.checkpoint("base").Commit.Commit
		id := fmt.Sprintf("p-%03d", i)
		k := &task{c, id, base}
		k.write("workspace/file", fmt.Sprint(i, "\n"))
		if _, err := c.publish(wire.PrepareRequest{ID: id, Base: base, Tree: k.tree().Commit, Note: wire.Note{Message: "a task"}}); err != nil {
			c.t.Fatal(err)
		}
		if err := c.Logged(c.t.Context(), id); err != nil {
			c.t.Fatal(err)
		}
	}
}

// recordsOpened runs f and returns how often an existing record of a publish, or the folder that
// holds them all, was opened meanwhile.
func (c *computer) recordsOpened(f func()) int {
	c.t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(watch)
	dirs, err := filepath.Glob(c.path(".git/choir/publish/*"))
	if err != nil || len(dirs) == 0 {
		c.t.Fatalf("the publishes are %v, %v", dirs, err)
	}
	for _, dir := range append(dirs, c.path(".git/choir/publish")) {
		if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_OPEN); err != nil {
			c.t.Fatal(err)
		}
	}
	f()
	opened := 0
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(watch, buf)
		if errors.Is(err, unix.EAGAIN) {
			return opened
		}
		if err != nil {
			c.t.Fatal(err)
		}
		for at := 0; at < n; opened++ {
			if mask := binary.NativeEndian.Uint32(buf[at+4:]); mask&unix.IN_Q_OVERFLOW != 0 {
				c.t.Fatal("too many were opened to be counted")
			}
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
	}
}

// TestWhatIsDoneReadsNoRecordOfEarlierPublishes shows that a checkpoint, a restore, a publish and a
// put open as many records after 200 publishes as after 2, also after a start.
func TestWhatIsDoneReadsNoRecordOfEarlierPublishes(t *testing.T) {
	t.Parallel()
	counts := map[int][]int{}
	for _, publishes := range []int{2, 200} {
		c := open(t)
		c.write("workspace/file", "first\n")
		first := c.checkpoint("first").Commit.Commit
		c.publishes(publishes)
		for _, when := range []string{"running", "after a start"} {
			if when != "running" {
				c.reopen()
				if _, err := c.Unlogged(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c.checkpoint("between")
			act := func(f func()) { counts[publishes] = append(counts[publishes], c.recordsOpened(f)) }
			act(func() { c.write("workspace/other", when); c.checkpoint("a checkpoint") })
			act(func() { c.restore(wire.RestoreRequest{ID: fmt.Sprintf("r-%d", len(when)), To: first}) })
			act(func() { c.put("workspace/put", when) })
			act(func() {
				base := c.checkpoint("base").Commit.Commit
				k := &task{c, fmt.Sprintf("last-%d", len(when)), base}
				k.write("workspace/file", when)
				if _, err := c.publish(wire.PrepareRequest{ID: k.id, Base: base, Tree: k.tree().Commit, Note: wire.Note{Message: "the last task"}}); err != nil {
					t.Fatal(err)
				}
			})
		}
		c.fsck()
	}
	t.Logf("opened: %v", counts)
	for i, few := range counts[2] {
		if many := counts[200][i]; many > few {
			t.Errorf("act %d opens %d records behind 200 publishes, and %d behind 2", i, many, few)
		}
	}
}

// TestADamagedRecordIsFoundUnderARunningKeeper shows that a damaged record of a publish is set
// aside within the hour although nobody asks for that publish.
func TestADamagedRecordIsFoundUnderARunningKeeper(t *testing.T) {
	t.Parallel()
	var ahead time.Duration
	c := open(t, func(o *engine.Options) { o.Now = func() time.Time { return time.Now().Add(ahead) } })
	c.write("workspace/file", "first\n")
	c.publishes(2)
	c.checkpoint("after them")
	if err := os.WriteFile(c.path(".git/choir/publish/p-000/result.json"), []byte(`{"x`), 0o600); err != nil {
		t.Fatal(err)
	}
	ahead = time.Hour
	c.write("workspace/file", "by the user\n")
	c.checkpoint("an hour later")
	if lost, err := filepath.Glob(c.path(".git/choir/unreadable/p-000-*")); err != nil || len(lost) != 1 {
		t.Errorf("set aside are %v, %v", lost, err)
	}
	if got := c.read("workspace/file"); got != "by the user\n" {
		t.Errorf("the file holds %q", got)
	}
	if _, done, err := c.prepared("p-001"); err != nil || !done {
		t.Errorf("of the other publish is known: done %v, %v", done, err)
	}
}

// TestAPublishThatBeganIsDoneByWhateverComesNext shows that a publish that began is completed by
// the next request, also when checkpoints were made after it was prepared and before it began.
func TestAPublishThatBeganIsDoneByWhateverComesNext(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(c *computer){
		"a checkpoint": func(c *computer) { c.checkpoint("next") },
		"a put":        func(c *computer) { c.put("workspace/put", "put\n") },
		"a start":      func(c *computer) { c.reopen(); c.checkpoint("next") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t)
			c.write("workspace/file", "first\n")
			k := c.begin("t")
			k.write("workspace/file", "second\n")
			if _, err := c.Prepare(t.Context(), wire.PrepareRequest{ID: "p", Base: k.base, Tree: k.tree().Commit, Note: wire.Note{Message: "the task"}}); err != nil {
				t.Fatal(err)
			}
			c.checkpoint("nothing new")
			c.checkpoint("nothing new")
			if err := c.Begin(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			next(c)
			if got := c.read("workspace/file"); got != "second\n" {
				t.Errorf("the file holds %q", got)
			}
		})
	}
}

// TestAPublishIsForgottenAfterItsDay shows that a finished publish that the host knows of, and one
// that was prepared and never began, are remembered for one day, and one that the host has not
// heard of until the host has.
func TestAPublishIsForgottenAfterItsDay(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"running": false, "after a start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ahead time.Duration
			c := open(t, func(o *engine.Options) { o.Now = func() time.Time { return time.Now().Add(ahead) } })
			c.write("workspace/file", "first\n")
			c.publishes(1)
			k := c.begin("late")
			k.write("workspace/other", "the host hears of it late\n")
			k.publish()
			if _, _, err := c.prepared("never-begun"); err != nil {
				t.Fatal(err)
			}
			there := func() int {
				c.checkpoint("a scan")
				all, err := filepath.Glob(c.path(".git/choir/publish/*/plan.json"))
				if err != nil {
					t.Fatal(err)
				}
				return len(all)
			}
			for _, at := range []struct {
				after time.Duration
				want  int
			}{{0, 3}, {24*time.Hour - 10*time.Minute, 3}, {24*time.Hour + time.Minute, 1}, {24*time.Hour + 2*time.Minute, 0}} {
				ahead = at.after
				if restart {
					c.reopen()
				}
				if at.want == 0 {
					if err := c.Logged(t.Context(), "p-late"); err != nil {
						t.Fatal(err)
					}
				}
				if got := there(); got != at.want {
					t.Errorf("after %v there are %d plans, want %d", at.after, got, at.want)
				}
			}
		})
	}
}

// prepared prepares a publish of the present tree, and reports whether it is done already.
func (c *computer) prepared(id string) (wire.PrepareReply, bool, error) {
	base := c.checkpoint("base").Commit.Commit
	r, err := c.Prepare(c.t.Context(), wire.PrepareRequest{ID: id, Base: base, Tree: base, Note: wire.Note{Message: "what is there"}})
	return r, r.Done, err
}

// BenchmarkBehindPublishes measures a checkpoint of an unchanged tree, and a restore that changes
// one file, after few and after many publishes within the last day.
func BenchmarkBehindPublishes(b *testing.B) {
	for _, publishes := range []int{20, 500} {
		c := open(b)
		c.write("workspace/file", "first\n")
		first := c.checkpoint("first").Commit.Commit
		c.publishes(publishes)
		n := 0
		for name, act := range map[string]func(){
			"checkpoint": func() { c.checkpoint("nothing new") },
			"restore":    func() { c.restore(wire.RestoreRequest{ID: "back", To: first}) },
		} {
			b.Run(fmt.Sprint(name, " behind ", publishes), func(b *testing.B) {
				c.checkpoint("before")
				before := usedBy(b)
				did := 0
				for b.Loop() {
					n++
					did++
					if name == "restore" {
						c.write("workspace/file", fmt.Sprint("again ", n, "\n"))
					}
					act()
				}
				b.ReportMetric(float64(usedBy(b).cpu-before.cpu)/float64(did)/1e6, "cpu-ms/op")
			})
		}
	}
}
