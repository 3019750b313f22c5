package local

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestSocketsOfABoxAreBounded shows that the memory of a box's network sockets stays within its
// bound, whatever is written to them, and that another box's sockets still work.
func TestSocketsOfABoxAreBounded(t *testing.T) {
	d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if d.cgroups.Parent["memory"] == "" {
		t.Skip("no control groups here")
	}
	e := sandboxtest.NewEnv(t, d)
	const memory = 256 << 20
	for _, kind := range []string{"tcp", "udp"} {
		opened, g := e.Box(t, sandbox.BoxSpec{ID: kind, Limits: sandbox.Limits{MemoryBytes: memory}})
		filled := make(chan struct{})
		var fills sync.WaitGroup
		fills.Go(func() {
			_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "sockets", kind, map[string]string{"tcp": "60", "udp": "1000"}[kind]}},
				guest.Streams{Stdout: closer{filled}})
		})
		t.Cleanup(fills.Wait)
		b := opened.(*box)
		select {
		case <-filled:
		case <-b.done: // in version 2, it counts as the box's own memory
		case <-time.After(time.Minute):
			t.Fatal("the sockets are not filled")
		}
		counted, ok := b.group.Sockets()
		if b.Err() == nil && (!ok || counted == 0) {
			t.Errorf("%s: nothing is counted", kind)
		}
		seen, _ := waiting("/proc/" + strconv.Itoa(b.pid) + "/net/" + kind)
		// The kernel lets the first piece of each socket pass.
		if most := socketLimit(memory) + 60*256<<10; counted > most || seen > most {
			t.Errorf("the sockets of a box hold %d MiB of %s, and %d MiB are seen in them, with a bound of %d", counted>>20, kind, seen>>20, socketLimit(memory)>>20)
		}
		if err := opened.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// closer closes its channel when something is written to it.
type closer struct{ c chan struct{} }

func (c closer) Write(p []byte) (int, error) {
	select {
	case <-c.c:
	default:
		close(c.c)
	}
	return len(p), nil
}

// TestOneBoxTakesTheMemoryOfSockets shows that a box whose sockets take all the memory that the
// machine allows for sockets (here a part of it) is ended and says why, and that a box with some
// connections lives.
func TestOneBoxTakesTheMemoryOfSockets(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		const some = 64 << 20
		for kind, count := range map[string]string{"tcp": "60", "tcp-small": "60", "udp": "1000"} {
			protocol := kind[:3]
			d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			if err := d.guard.close(); err != nil {
				t.Fatal(err)
			}
			if d.guard, err = newGuard(d); err != nil {
				t.Fatal(err)
			}
			e := sandboxtest.NewEnv(t, d)
			quiet := holding(t, e, "quiet", "sockets", kind, "1")
			d.guard.shared = []*shared{{"memory for " + protocol, defence.BoxAllSockets, socketsHold(protocol) + some, noSocketMemory(protocol), ofEach(heldBySockets(protocol))}}
			d.guard.start()
			greedy, g := e.Box(t, sandbox.BoxSpec{ID: "greedy"})
			var eats sync.WaitGroup
			t.Cleanup(eats.Wait)
			eats.Go(func() {
				_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "sockets", kind, count}}, guest.Streams{})
			})
			if ended := sandboxtest.AwaitEnd(t, greedy, time.Minute); ended.Reason != sandbox.Shared || !strings.Contains(ended.Detail, "memory for "+protocol) {
				t.Errorf("%s: the box ended for %v", kind, ended)
			}
			if quiet.Err() != nil {
				t.Errorf("%s: the other box ended: %v", kind, quiet.Err())
			}
		}
	})
}

// TestOneBoxTakesMemoryByNetlink shows that a box is ended that leaves very much in netlink sockets,
// which counts for nobody, or has so many that they are not looked at, and that a box with a few full
// ones lives.
func TestOneBoxTakesMemoryByNetlink(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		e := sandboxtest.NewEnv(t, d)
		quiet := holding(t, e, "quiet", "sockets", "netlink", "3")
		if held := heldByNetlink(quiet); held < 256<<10 {
			t.Errorf("%d bytes are seen in three full sockets", held)
		}
		for kind, count := range map[string]string{"netlink": "400", "netlink-empty": "5000"} {
			greedy, g := e.Box(t, sandbox.BoxSpec{ID: kind})
			var eats sync.WaitGroup
			t.Cleanup(eats.Wait)
			eats.Go(func() {
				_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "sockets", kind, count}}, guest.Streams{})
			})
			if ended := sandboxtest.AwaitEnd(t, greedy, time.Minute); ended.Reason != sandbox.Shared || !strings.Contains(ended.Detail, "memory for netlink") {
				t.Errorf("%s: the box ended for %v", kind, ended)
			}
		}
		if quiet.Err() != nil {
			t.Errorf("the other box ended: %v", quiet.Err())
		}
	})
}
