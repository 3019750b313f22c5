package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// pushAll receives the push whose list is in a file, and publishes it.
func pushAll(ctx context.Context, e *engine.Engine, base, tip, list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := e.Pushes().Receive(ctx, wire.ReceiveRequest{ID: "push", Base: base, Tip: tip, Most: 64 << 20}, f); err != nil {
		return err
	}
	p, err := e.Prepare(ctx, preparedPush(base, tip))
	if err != nil || len(p.Conflicts) > 0 {
		return fmt.Errorf("%v, %w", p.Conflicts, err)
	}
	if err := e.Begin(ctx, p.ID); err != nil {
		return err
	}
	_, err = e.Apply(ctx, p.ID)
	return err
}

func preparedPush(base, tip string) wire.PrepareRequest {
	return wire.PrepareRequest{ID: "push-1", Base: base, Tree: tip, Pushed: tip, Received: "push", Whole: true, Note: wire.Note{Kind: "push", Message: "Push"}}
}

// large begins a push that is stored as a pack.
func (b *brought) large(c *computer) {
	raw := make([]byte, 3<<20)
	for i := range raw {
		raw[i] = byte(rand.N(256))
	}
	sub := strings.TrimSpace(c.git("rev-parse", "HEAD:sub"))
	b.commit(b.tree("100644 a", b.file("pushed\n"), "100644 big", b.file(string(raw)), "40000 sub", sub), "pushed", b.base)
}

// besideStore lists what lies beside the history.
func (c *computer) besideStore() []string {
	c.t.Helper()
	var out []string
	for _, glob := range []string{"incoming-*", "adopted-*"} {
		found, err := filepath.Glob(filepath.Join(c.opts.Root, ".git/choir", glob))
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// TestAPutWaitsForNoPush: while what a push brings is looked at, and while it is written,
// others change the tree.
func TestAPutWaitsForNoPush(t *testing.T) {
	t.Parallel()
	var c *computer
	var once [2]sync.Once
	through := map[string]error{}
	c, b := pushes(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			n := slices.Index([]string{"push.checked", "push.writing"}, point)
			if n < 0 {
				return
			}
			once[n].Do(func() {
				put := make(chan error, 1)
				go func() {
					_, err := c.Engine.Write(context.Background(), wire.WriteRequest{Path: wire.Path(point)}, strings.NewReader("put"))
					put <- err
				}()
				select {
				case through[point] = <-put:
				case <-time.After(time.Minute): // it waits for the push, which waits here
					through[point] = context.DeadlineExceeded
				}
			})
		}
	})
	b.large(c)
	if _, err := c.Pushes().Receive(c.ctx(), wire.ReceiveRequest{ID: "push", Base: b.base, Tip: b.tip, Most: 64 << 20}, &b.list); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"push.checked", "push.writing"} {
		if err, passed := through[point]; !passed || err != nil {
			t.Errorf("a put at %s: passed %v, %v", point, passed, err)
		}
	}
}

// TestAPushThatConflictsLeavesNothing: of what conflicts, or is dropped, or comes when the
// checkpoint has changed since, the history has no object, and the disk nothing.
func TestAPushThatConflictsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, c *computer, b *brought){
		"a conflict": func(t *testing.T, c *computer, b *brought) {
			c.write("a", "somebody else's\n")
			c.checkpoint("meanwhile")
			p, err := c.Prepare(c.ctx(), preparedPush(b.base, b.tip))
			if err != nil || len(p.Conflicts) != 1 || p.Commit != "" {
				t.Fatalf("%+v, %v", p, err)
			}
		},
		"dropped before": func(*testing.T, *computer, *brought) {},
		"dropped after it was prepared": func(t *testing.T, c *computer, b *brought) {
			if p, err := c.Prepare(c.ctx(), preparedPush(b.base, b.tip)); err != nil || len(p.Conflicts) > 0 {
				t.Fatalf("%+v, %v", p, err)
			}
		},
		"another checkpoint since": func(t *testing.T, c *computer, b *brought) {
			if p, err := c.Prepare(c.ctx(), preparedPush(b.base, b.tip)); err != nil || len(p.Conflicts) > 0 {
				t.Fatalf("%+v, %v", p, err)
			}
			c.write("other", "x")
			c.checkpoint("meanwhile")
			if err := c.Begin(c.ctx(), "push-1"); err == nil {
				t.Fatal("it began")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, b := pushes(t)
			b.large(c)
			if _, err := c.Pushes().Receive(c.ctx(), wire.ReceiveRequest{ID: "push", Base: b.base, Tip: b.tip, Most: 64 << 20}, &b.list); err != nil {
				t.Fatal(err)
			}
			prepare(t, c, b)
			if err := c.Drop(c.ctx(), "push"); err != nil {
				t.Fatal(err)
			}
			if left := c.besideStore(); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
			if list := strings.Fields(c.git("rev-list", "--all", "--objects", "--no-object-names")); !slices.Equal(c.objects(), slices.Sorted(slices.Values(list))) {
				t.Errorf("there are %d objects, and %d are named", len(c.objects()), len(list))
			}
			if err := c.Begin(c.ctx(), "push-1"); err == nil {
				t.Error("what was dropped began")
			}
			stockGit(t, c.opts.Root, "fsck", "--full", "--strict")
		})
	}
}

// TestAPushOfAnyNumberOfObjects: what is beside the history is added to it as files or as a
// pack, with the commit of the publish in both.
func TestAPushOfAnyNumberOfObjects(t *testing.T) {
	t.Parallel()
	for _, n := range []int{42, 43, 44, 45, 46, 60} { // 48 objects of one call and more become a pack
		c, b := pushes(t)
		names := []string{"100644 a", b.file("a")}
		for i := range n {
			names = append(names, fmt.Sprintf("100644 f%03d", i), b.file(fmt.Sprint("file ", i)))
		}
		b.commit(b.tree(append(names, "40000 sub", strings.TrimSpace(c.git("rev-parse", "HEAD:sub")))...), "pushed", b.base)
		c.write("beside", "so that the tree is another one") // and is written too
		list := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(list, b.list.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := pushAll(c.ctx(), c.Engine, b.base, b.tip, list); err != nil {
			t.Errorf("%d files: %v", n, err)
		}
		if left := c.besideStore(); len(left) > 0 {
			t.Errorf("%d files left %v", n, left)
		}
		stockGit(t, c.opts.Root, "fsck", "--full", "--strict")
	}
}

// TestAPushNamesNotMoreThanIsRemembered: what a push names and does not bring is bounded.
func TestAPushNamesNotMoreThanIsRemembered(t *testing.T) {
	t.Parallel()
	c, b := pushes(t, func(o *engine.Options) { o.Limits.Files = 100 })
	names := make([]string, 0, 2*251_000)
	for i := range 251_000 {
		names = append(names, fmt.Sprintf("100644 f%06d", i), fmt.Sprintf("%040x", i))
	}
	b.root(names...)
	_, err := c.Pushes().Receive(c.ctx(), wire.ReceiveRequest{ID: "push", Base: b.base, Tip: b.tip, Most: 64 << 20}, &b.list)
	if err == nil || !strings.Contains(err.Error(), "that it does not bring") {
		t.Errorf("it was answered with %v", err)
	}
}

// TestAPushIsKilledAtEveryPoint kills the engine at each point of a push. What is there then
// is all of it or nothing: the history is whole, nothing lies beside it, and the push can be
// repeated and undone.
func TestAPushIsKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		point string
		nth   int32
		there bool // afterwards
	}{
		{"push.checked", 1, false}, {"push.writing", 2, false}, {"push.received", 1, false}, {"publish.merged", 1, false}, {"push.renamed", 1, false},
		{"journal.synced", 1, false}, {"journal.synced", 2, true}, {"publish.started", 1, true}, {"push.linked", 1, true}, {"push.linked", 2, true}, {"push.adopted", 1, true}, {"apply.staging", 1, true},
		{"apply.step", 1, true}, {"apply.placed", 1, true}, {"apply.done", 1, true},
	} {
		t.Run(fmt.Sprint(at.point, " ", at.nth), func(t *testing.T) {
			t.Parallel()
			c, b := pushes(t)
			b.large(c)
			list := filepath.Join(t.TempDir(), "list")
			if err := os.WriteFile(list, b.list.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			was := c.objects()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c.Engine = nil
			if !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Do: "push", Point: at.point, Nth: at.nth, Base: b.base, Task: b.tip, To: list}) {
				t.Fatalf("the child did not pass %s", at.point)
			}
			c.reopen()
			if _, err := c.Unlogged(c.ctx()); err != nil {
				t.Fatal(err)
			}
			if left := c.besideStore(); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
			stockGit(t, c.opts.Root, "fsck", "--full", "--strict")
			has := exec.CommandContext(c.ctx(), "git", "-C", c.opts.Root, "cat-file", "-e", b.tip).Run() == nil
			raw, err := os.ReadFile(filepath.Join(c.opts.Root, "a"))
			if placed := string(raw) == "pushed\n"; err != nil || placed != at.there || has != at.there {
				t.Fatalf("the file is there %v, the commit %v, want %v; %v", placed, has, at.there, err)
			}
			if now := c.objects(); !at.there && !slices.Equal(now, was) {
				t.Errorf("of a push that is not there are %d objects", len(now)-len(was))
			}
			if !at.there {
				if err := pushAll(c.ctx(), c.Engine, b.base, b.tip, list); err != nil {
					t.Fatalf("pushed again: %v", err)
				}
			}
			if _, err := c.Restore(c.ctx(), wire.RestoreRequest{ID: "r", To: b.base}); err != nil {
				t.Fatal(err)
			}
			if raw, err := os.ReadFile(filepath.Join(c.opts.Root, "a")); err != nil || string(raw) != "a" {
				t.Errorf("after the undo it is %q, %v", raw, err)
			}
			stockGit(t, c.opts.Root, "fsck", "--full", "--strict")
		})
	}
}
