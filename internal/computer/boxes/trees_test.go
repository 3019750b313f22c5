package boxes

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/test/choirtest"
)

// asked is the result for somebody who waits for a tree.
type asked struct {
	got  installed
	kept bool
	err  error
}

func ask(ctx context.Context, d *dependencies, of *trees, key string, make filler) chan asked {
	out := newAnswer()
	go func() {
		var a asked
		a.got, a.kept, a.err = of.made(ctx, d.boxes, d.turn, key, make)
		out <- a
	}()
	return out
}

func newAnswer() chan asked { return make(chan asked, 1) }

func (t *trees) waits(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.flights[key]; f != nil {
		return f.waiting
	}
	return 0
}

// TestTwoComputersInstallOnce shows that a request for a tree that is being installed waits for
// that. If the first caller gives up, the installation continues for the second; if the first
// caller's computer falls asleep, it begins anew for the second; if nobody wants it any more, it
// ends.
func TestTwoComputersInstallOnce(t *testing.T) {
	both := machineDependencies(t, "cid-one", "cid-two")
	of := both[0].boxes.options.Machine.sharedTrees()
	var begun atomic.Int32
	slow := func(d *dependencies, release chan struct{}) filler {
		return func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
			begun.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
				return installed{}, context.Cause(ctx)
			}
			return d.filled(map[string]string{"out/file": "x"}, nil, goTree)(ctx, tmp)
		}
	}
	begin := func(t *testing.T, key string, release chan struct{}) (first, second chan asked, cancel func()) {
		t.Helper()
		begun.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		first = ask(ctx, both[0], of, key, slow(both[0], release))
		choirtest.Eventually(t, time.Minute, "the first has begun", func() bool { return begun.Load() == 1 })
		second = ask(t.Context(), both[1], of, key, slow(both[1], release))
		choirtest.Eventually(t, time.Minute, "both wait", func() bool { return of.waits(key) == 2 })
		return first, second, cancel
	}

	t.Run("once", func(t *testing.T) {
		release := make(chan struct{})
		first, second, cancel := begin(t, "go-once", release)
		defer cancel()
		close(release)
		a, b := <-first, <-second
		if a.err != nil || b.err != nil || a.kept || !b.kept || begun.Load() != 1 {
			t.Errorf("%+v and %+v, installed %d times", a, b, begun.Load())
		}
		of.most = 0
		if err := of.bound(t.Context(), both[0].volumes()); err != nil || !slices.Contains(both[0].keys(t, of), "go-once") {
			t.Errorf("what both use is gone: %v", err)
		}
		of.release("go-once")
		of.release("go-once")
		of.most = 1 << 30
	})
	t.Run("the first goes away", func(t *testing.T) {
		release := make(chan struct{})
		first, second, cancel := begin(t, "go-left", release)
		cancel()
		if a := <-first; !errors.Is(a.err, context.Canceled) {
			t.Errorf("the first got %+v", a)
		}
		close(release)
		if b := <-second; b.err != nil || begun.Load() != 1 {
			t.Errorf("the second got %+v, installed %d times", b, begun.Load())
		}
		of.release("go-left")
	})
	t.Run("both go away", func(t *testing.T) {
		begun.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		gone := ask(ctx, both[1], of, "go-unwanted", slow(both[1], nil))
		choirtest.Eventually(t, time.Minute, "it has begun", func() bool { return begun.Load() == 1 })
		cancel()
		<-gone
		both[1].has(t, of, "go-unwanted", both[1].filled(map[string]string{"out/file": "x"}, nil, goTree))
	})
	t.Run("the first falls asleep", func(t *testing.T) {
		release := make(chan struct{})
		first, second, cancel := begin(t, "go-asleep", release)
		defer cancel()
		both[0].boxes.options.On.(onlyVolumes).sleep()
		if a := <-first; a.err == nil {
			t.Error("a computer that sleeps has installed")
		}
		choirtest.Eventually(t, time.Minute, "the second begins anew", func() bool { return begun.Load() == 2 })
		close(release)
		if b := <-second; b.err != nil || b.kept {
			t.Errorf("the second got %+v", b)
		}
		of.release("go-asleep")
	})
	for _, key := range both[1].keys(t, of) {
		if strings.HasPrefix(key, filling) {
			t.Errorf("%s is left", key)
		}
	}
}

// TestAFailedInstallationKeepsNothing shows also that its computer does not try again at once.
func TestAFailedInstallationKeepsNothing(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	of := d.boxes.options.Machine.sharedTrees()
	n := 0
	fails := func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		n++
		_, err := d.filled(map[string]string{"out/file": "x"}, nil)(ctx, tmp)
		return installed{}, errors.Join(err, fault.New("", fault.Unavailable, "", errors.New("the registry is gone")))
	}
	for range 2 {
		if _, _, err := of.made(t.Context(), d.boxes, d.turn, "go-x", fails); err == nil || !strings.Contains(err.Error(), "the registry is gone") {
			t.Errorf("it came to %v", err)
		}
	}
	if got := d.keys(t, of); n != 1 || len(got) != 0 {
		t.Errorf("tried %d times; there are %v", n, got)
	}
}

// TestAttack40_WhatHindersOneComputerHindersNoOther shows that a failed installation of one
// computer fails neither another one that waited for it, nor one that asks right afterwards.
func TestAttack40_WhatHindersOneComputerHindersNoOther(t *testing.T) {
	three := machineDependencies(t, "cid-one", "cid-two", "cid-three")
	of := three[0].boxes.options.Machine.sharedTrees()
	release := make(chan struct{})
	first := ask(t.Context(), three[0], of, "go-x", func(context.Context, sandbox.Volume) (installed, error) {
		<-release
		return installed{}, fault.New("", fault.Exhausted, "", errors.New("its box had no memory"))
	})
	choirtest.Eventually(t, time.Minute, "the first has begun", func() bool { return of.waits("go-x") == 1 })
	works := func(d *dependencies) filler { return d.filled(map[string]string{"out/file": "x"}, nil, goTree) }
	second := ask(t.Context(), three[1], of, "go-x", works(three[1]))
	choirtest.Eventually(t, time.Minute, "both wait", func() bool { return of.waits("go-x") == 2 })
	close(release)
	if a := <-first; a.err == nil {
		t.Error("the first has installed")
	}
	third := ask(t.Context(), three[2], of, "go-x", works(three[2]))
	for _, answer := range []chan asked{second, third} {
		if a := <-answer; a.err != nil {
			t.Errorf("what hindered one hinders another: %v", a.err)
		}
	}
}

// TestAttack40_WhatIsNotWhatWasKeptIsMadeAnew shows that a tree is made anew if another process
// finds that a file was changed, added or removed, that a link is in its place, or that the record
// of the tree is torn.
func TestAttack40_WhatIsNotWhatWasKeptIsMadeAnew(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	make := d.filled(map[string]string{"out/a": "a", "out/b": "b"}, nil, goTree)
	for _, of := range []*trees{d.own, d.boxes.options.Machine.sharedTrees()} {
		d.has(t, of, "go-x", make)
		at := func(name string) string { return d.dir(t, of, "go-x", name) }
		for name, harm := range map[string]func() error{
			"written": func() error { return os.WriteFile(at("out/a"), []byte("b"), 0o644) },
			"added":   func() error { return os.WriteFile(at("out/c"), nil, 0o644) },
			"gone":    func() error { return os.Remove(at("out/b")) },
			"a link":  func() error { return errors.Join(os.Remove(at("out/b")), os.Symlink("a", at("out/b"))) },
			"run":     func() error { return os.Chmod(at("out/a"), 0o755) },
			"torn":    func() error { return os.Truncate(at(entryFile), 3) },
			"no tree": func() error { return errors.Join(os.RemoveAll(at("out")), os.Symlink(t.TempDir(), at("out"))) },
		} {
			if err := harm(); err != nil {
				t.Fatal(err)
			}
			clear(of.verified) // as in another process
			got, kept, err := of.made(t.Context(), d.boxes, d.turn, "go-x", make)
			if err != nil || kept || !strings.Contains(got.Note, "damaged") {
				t.Errorf("%s: what is kept is used though it changed: %+v, kept %t, %v", name, got, kept, err)
				continue
			}
			of.release("go-x")
			if b, err := os.ReadFile(at("out/a")); err != nil || string(b) != "a" {
				t.Errorf("%s: it holds %q, %v", name, b, err)
			}
		}
		clear(of.verified)
		if _, kept, err := of.made(t.Context(), d.boxes, d.turn, "go-x", make); err != nil || !kept {
			t.Errorf("what is whole is made anew: %v", err)
		}
	}
}

// TestAttack40_NothingSharedLeadsOut shows that a tree is not shared if it has a link that leads
// out of it, or anything but files, folders and links. Links that stay inside, as npm makes for
// programs, are accepted.
func TestAttack40_NothingSharedLeadsOut(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	of := d.boxes.options.Machine.sharedTrees()
	for name, to := range map[string]string{
		"src/node_modules/a": "/etc/passwd", "src/b": "../../x", "src/c": "../other/x", "src/node_modules/d": "x/../../../..",
	} {
		key := "npm-" + strings.ReplaceAll(name, "/", "-")
		_, _, err := of.made(t.Context(), d.boxes, d.turn, key, d.filled(map[string]string{"src/node_modules/x/f": "x"}, map[string]string{name: to}))
		if !fault.Is(err, fault.Denied) || of.there(t.Context(), d.volumes(), key) {
			t.Errorf("a link at %s to %s is shared: %v", name, to, err)
		}
	}
	d.has(t, of, "npm-fine", d.filled(map[string]string{"src/node_modules/x/f": "x", "src/packages/p/f": "p"},
		map[string]string{"src/node_modules/.bin/f": "../x/f", "src/node_modules/p": "../packages/p"}))
}
