package local

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestOneBoxPassesAllDescriptors: descriptors that were sent over a socket and not received yet
// count against a limit of the host's user. A box that leaves so many that no other box can pass
// any is ended and says why, even if they are in a socket that was itself sent and not received;
// then others can pass theirs. A box that leaves a few lives.
func TestOneBoxPassesAllDescriptors(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		for kind, how := range map[string][]string{
			"seen": {"under-way", "seen", "0"}, "hidden": {"under-way", "hidden", "12000"}, "unseen": {"unseen", "under-way", "seen", "0"},
		} {
			var errs errorLog
			d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			e := sandboxtest.NewEnv(t, d)
			quiet := holding(t, e, "quiet", "under-way", "seen", "300")
			greedy := holding(t, e, "greedy", how...)
			if ended := sandboxtest.AwaitEnd(t, greedy, time.Minute); ended.Reason != sandbox.Shared || !strings.Contains(ended.Detail, "descriptors under way") {
				t.Errorf("%s: the box ended for %v", kind, ended)
			}
			_, g := e.Box(t, sandbox.BoxSpec{ID: "other"})
			sandboxtest.Eventually(t, 10*time.Second, "another box passes a descriptor", func() bool {
				return sandboxtest.Run(t, g, sandboxtest.ProbeInside, "under-way", "one").Code == 0
			})
			if said := errs.said.Load(); said != nil {
				t.Errorf("%s: choir's log blames others: %s", kind, *said)
			}
			if quiet.Err() != nil {
				t.Errorf("%s: the other box ended: %v", kind, quiet.Err())
			}
			if err := quiet.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// errorLog keeps the last error that was logged.
type errorLog struct{ said atomic.Pointer[string] }

func (l *errorLog) Write(p []byte) (int, error) {
	text := string(p)
	l.said.Store(&text)
	return len(p), nil
}

// TestWhatABoxLeavesUnderWay shows that descriptors that were sent and not received count for the
// box that sent them, also in connections of another's that are accepted or waiting, and that a
// socket among them is found.
func TestWhatABoxLeavesUnderWay(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
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
		d.guard.shared = nil
		d.guard.start()
		e := sandboxtest.NewEnv(t, d)
		const there = "/computer/socket"
		quiet := holding(t, e, "quiet", "under-way", "seen", "30")
		hiding := holding(t, e, "hiding", "under-way", "hidden", "600")
		listener := holding(t, e, "listener", "under-way", "listen", "1", there)
		greedy := holding(t, e, "greedy", "under-way", "elsewhere", "600", there)
		boxes := []*box{listener, quiet, hiding, greedy}
		seen, hidden := underWay(boxes)
		for b, want := range map[*box]int64{listener: 0, quiet: 30, hiding: 1, greedy: 1200} {
			if seen[b] != want {
				t.Errorf("the box %s is seen to have left %d, not %d", b.spec.ID, seen[b], want)
			}
			if most := map[*box]int{hiding: 1}[b]; len(hidden[b]) != most {
				t.Errorf("the box %s has %d sockets that are under way", b.spec.ID, len(hidden[b]))
			}
		}
		// What is sent and received within moments is not held against anybody.
		f := flights{driver: d}
		if held := f.held(boxes); len(held) != 0 {
			t.Errorf("at the first look boxes are held to have left %v", held)
		}
		sandboxtest.Eventually(t, 20*time.Second, "who left many is known after a while, and nobody else", func() bool {
			held := f.held(boxes)
			return len(held) == 2 && held[greedy] == 1200 && held[hiding] == mostUnderWay/suspect
		})
	})
}
