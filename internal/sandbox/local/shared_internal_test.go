package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// holding opens a box and returns it once the probe in it holds something.
func holding(t *testing.T, e *sandboxtest.Env, id string, probe ...string) *box {
	t.Helper()
	b, g := e.Box(t, sandbox.BoxSpec{ID: id, Mounts: []sandbox.Mount{e.LiveMount()}})
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var held sync.WaitGroup
	t.Cleanup(func() { held.Wait(); _ = out.Close(); _ = w.Close() })
	held.Go(func() { // this lasts until the test ends
		_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: append([]string{sandboxtest.ProbeInside}, probe...)}, guest.Streams{Stdout: w})
	})
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	if n, err := out.Read(said); n == 0 || !strings.HasPrefix(string(said), "holding") {
		t.Fatalf("the probe holds nothing: %q, %v", said[:n], err)
	}
	return b.(*box)
}

// TestWhatABoxHolds shows that what a box holds of shared resources is found, even if it tries to
// hide it.
func TestWhatABoxHolds(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		e := sandboxtest.NewEnv(t, d)
		most := int64(readInt("/proc/sys/fs/epoll/max_user_watches"))
		quiet := holding(t, e, "quiet", "watches", "10")
		many := holding(t, e, "many", "watches", "20000")
		hidden := holding(t, e, "hidden", "watches-hidden", "20000")
		files := holding(t, e, "files", "files", "5000")
		unseen := holding(t, e, "unseen", "unseen", "watches", "20000")
		for _, b := range []*box{quiet, many, hidden, files, unseen} {
			b.group = &cgroup.Group{In: d.cgroups} // otherwise the memory of the group would be counted
		}
		if n := watchesOf(quiet); n < 10 || n > 100 {
			t.Errorf("a quiet box is seen to have %d watches", n)
		}
		if n := watchesOf(many); n < 20000 || n > 21000 {
			t.Errorf("a box with 20,000 watches is seen to have %d", n)
		}
		if n := watchesOf(hidden); n < most/suspect {
			t.Errorf("a box whose epoll instances are under way is seen to have %d watches", n)
		}
		if n := watchesOf(unseen); n < 20000 || n > 2000000 {
			t.Errorf("a box with 20,000 watches where nobody may look is seen to have %d", n)
		}
		if n := filesOf(unseen); n < 1000 || n > 5000 {
			t.Errorf("a box with 1,000 open files where nobody may look is seen to have %d", n)
		}
		if n := filesOf(files); n < 5000 || n > 5500 {
			t.Errorf("a box with 5,000 open files is seen to have %d", n)
		}
		if n := filesOf(hidden); n < 20 || n > 2000 {
			t.Errorf("a box with descriptors under way is seen to have %d", n)
		}
	})
}

// TestMemoryOfWatches shows that a limit on a box's memory bounds its watches where the kernel
// counts them, and that other memory of the kernel's is not taken for watches.
func TestMemoryOfWatches(t *testing.T) {
	d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	e := sandboxtest.NewEnv(t, d)
	b := holding(t, e, "many", "watches", "200000")
	if len(b.group.Dirs) == 0 {
		t.Skip("no control groups here")
	}
	if n := watchesOf(b); n < 200000 || n > 1000000 {
		t.Errorf("a box with 200,000 watches is seen to have up to %d, by %d bytes", n, b.group.KernelBytes())
	}
	most := int64(readInt("/proc/sys/fs/epoll/max_user_watches"))
	opened, g := e.Box(t, sandbox.BoxSpec{ID: "files"})
	b = opened.(*box)
	if r := sandboxtest.Run(t, g, "sh", "-c", fmt.Sprintf("cd /tmp && seq %d | xargs touch", most/suspect*watchBytes/500)); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if bytes := b.group.KernelBytes(); bytes < most/suspect*watchBytes {
		t.Fatalf("the files take %d bytes only", bytes)
	}
	if n := watchesOf(b); n > most/suspect/10 {
		t.Errorf("a box of many files is seen to have %d watches, and would be ended for who uses them up", n)
	}
}

// TestOneBoxOpensAllFiles shows that a box that opens all files that the machine allows (here a
// small number) is ended and says why, while another one lives.
func TestOneBoxOpensAllFiles(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if err := d.guard.close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile("/proc/sys/fs/file-nr")
		if err != nil {
			t.Fatal(err)
		}
		now, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if d.guard, err = newGuard(d); err != nil {
			t.Fatal(err)
		}
		d.guard.shared = []*shared{{"open files", defence.BoxFiles, (now + 20000) / 7 * 8, nearlyNoFiles, ofEach(filesOf)}}
		d.guard.start()
		e := sandboxtest.NewEnv(t, d)
		quiet, _ := e.Box(t, sandbox.BoxSpec{ID: "quiet"})
		greedy, g := e.Box(t, sandbox.BoxSpec{ID: "greedy"})
		var eats sync.WaitGroup
		t.Cleanup(eats.Wait)
		eats.Go(func() {
			_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "files", "60000"}}, guest.Streams{})
		})
		if ended := sandboxtest.AwaitEnd(t, greedy, time.Minute); ended.Reason != sandbox.Shared || !strings.Contains(ended.Detail, "open files") {
			t.Errorf("the box ended for %v", ended)
		}
		if quiet.Err() != nil {
			t.Errorf("the other box ended: %v", quiet.Err())
		}
	})
}

// TestOneBoxTakesAllPipes shows that when one box holds all the pipe buffers of the host's user,
// other boxes can be opened and their output arrives.
func TestOneBoxTakesAllPipes(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		e := sandboxtest.NewEnv(t, d)
		holding(t, e, "pipes", "pipes", "6000")
		_, g := e.Box(t, sandbox.BoxSpec{ID: "other"})
		if r := sandboxtest.Run(t, g, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x | cat"); r.Code != 0 || len(r.Out) != 1000000 {
			t.Errorf("another box's pipes passed %d bytes: %d %s", len(r.Out), r.Code, r.Err)
		}
	})
}
