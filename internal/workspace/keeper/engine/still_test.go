package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func (c *computer) underStill(still string) wire.CheckpointReply {
	c.t.Helper()
	r, err := c.Checkpoint(scan.WithStill(c.t.Context(), still), wire.CheckpointRequest{Note: wire.Note{Kind: "before"}})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// TestWhoeverMayHaveWrittenIsScannedFor shows that a change is missed only by a request that states
// that nobody can have made it since the last scan.
func TestWhoeverMayHaveWrittenIsScannedFor(t *testing.T) {
	for name, see := range map[string]func(c *computer) wire.CheckpointReply{
		"another stillness": func(c *computer) wire.CheckpointReply { return c.underStill("two") },
		"none":              func(c *computer) wire.CheckpointReply { return c.underStill("") },
		"an engine's start": func(c *computer) wire.CheckpointReply { c.reopen(); return c.underStill("one") },
		"a person's wish": func(c *computer) wire.CheckpointReply {
			r, err := c.Checkpoint(scan.WithStill(c.t.Context(), "one"), wire.CheckpointRequest{FullScan: true, Note: wire.Note{Kind: "manual"}})
			must(t, err)
			return r
		},
		"an import": func(c *computer) wire.CheckpointReply {
			archive, err := smallArchive("f", "f\n")
			must(t, err)
			_, err = c.Import(c.t.Context(), wire.ImportRequest{Path: "workspace/imported"}, archive)
			must(t, err)
			return c.underStill("one")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			for i := range 50 {
				c.write(fmt.Sprintf("workspace/d%d/%d", i%5, i), "x\n")
			}
			c.underStill("one")
			c.underStill("one")
			c.write("workspace/d1/foreign", "nobody said so\n")
			if r := c.underStill("one"); r.Created || r.NamesRead > 10 {
				t.Fatalf("under one stillness it read %d names: %+v", r.NamesRead, r)
			}
			if r := see(c); !r.Created {
				t.Error("the change was not seen")
			}
		})
	}
}

// TestItsOwnWritesAreKnown shows that whatever the engine itself does to the tree is in a
// checkpoint within the same stillness, without a full scan.
func TestItsOwnWritesAreKnown(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := open(t)
	c.write(".gitignore", "*.ign\nnode_modules/\n")
	for i := range 300 {
		c.write(fmt.Sprintf("workspace/still/d%d/%d", i%20, i), "x\n")
	}
	c.write("workspace/node_modules/m", "m\n")
	c.write("workspace/repo/.git/HEAD", "ref: refs/heads/main\n")
	c.underStill("s")
	base := c.underStill("s")
	names := []string{"a", "b", "c", "d.ign", "repo", "node_modules", ".gitignore", "e"}
	at := func() wire.Path {
		p := "workspace"
		for range 1 + rng.IntN(3) {
			p = path.Join(p, names[rng.IntN(len(names))])
		}
		return wire.Path(p)
	}
	few := 0
	var trash, did []string
	ctx := scan.WithStill(t.Context(), "s")
	for n := range 120 {
		act := rng.IntN(8)
		switch act {
		case 0, 1: // a path that something is in the way of is refused, which is as good
			p := at()
			_, err := c.Write(ctx, wire.WriteRequest{Path: p}, strings.NewReader(fmt.Sprintln(n)))
			did = append(did, fmt.Sprint("write ", p, err))
		case 2:
			p := at()
			r, err := c.Remove(ctx, wire.RemoveRequest{Path: p})
			if err == nil {
				trash = append(trash, r.ID)
			}
			did = append(did, fmt.Sprint("remove ", p, err))
		case 3:
			p := at()
			did = append(did, fmt.Sprint("mkdir ", p, c.Mkdir(ctx, string(p))))
		case 4:
			p, q := at(), at()
			_, err := c.Move(ctx, wire.MoveRequest{From: p, To: q})
			did = append(did, fmt.Sprint("move ", p, " ", q, err))
		case 5:
			if len(trash) > 0 {
				d, err := c.Untrash(ctx, wire.UntrashRequest{ID: trash[rng.IntN(len(trash))]})
				did = append(did, fmt.Sprint("untrash ", d.Path, err))
			}
		case 6:
			if rng.IntN(3) == 0 {
				p := at()
				_, err := c.Restore(ctx, wire.RestoreRequest{ID: fmt.Sprint("r", n), To: base.Commit.Commit, Paths: []wire.Path{p}})
				must(t, err)
				did = append(did, fmt.Sprint("restore ", p))
			}
		default:
			publishSome(ctx, t, c, rng, fmt.Sprint("t", n), names)
			did = append(did, "publish")
		}
		if rng.IntN(3) > 0 {
			continue // several at once
		}
		r := c.underStill("s")
		if r.NamesRead < 100 {
			few++
		}
		st, err := c.Status(t.Context())
		must(t, err)
		if len(st.Changes) > 0 {
			t.Fatalf("after %s the checkpoint, which read %d names, lacks %+v", strings.Join(did[max(0, len(did)-12):], "\n"), r.NamesRead, st.Changes)
		}
		ign, err := c.Ignored(ctx)
		must(t, err)
		if !slices.Equal(ign.Ignored, st.Ignored) && len(ign.Ignored)+len(st.Ignored) > 0 {
			t.Fatalf("after %s ignored are %v, not %v", strings.Join(did[max(0, len(did)-12):], "\n"), ign.Ignored, st.Ignored)
		}
		c.underStill("s") // Status told nobody what it saw
	}
	t.Logf("%d scans of a few paths only", few)
	if few == 0 {
		t.Error("all of the tree was scanned each time")
	}
}

// publishSome publishes a task that made, changed and removed something.
func publishSome(ctx context.Context, t *testing.T, c *computer, rng *rand.Rand, id string, names []string) {
	t.Helper()
	base, err := c.Checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "before"}})
	must(t, err)
	live := picture(t, c.opts.Root)
	upper := filepath.Join(c.opts.Uppers, id, "upper")
	must(t, os.MkdirAll(upper, 0o755))
	for _, p := range slices.Sorted(maps.Keys(live)) {
		if rng.IntN(200) == 0 && strings.HasPrefix(p, "workspace/") && !strings.Contains(p, ".git/") {
			for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
				if st, err := os.Lstat(filepath.Join(upper, dir)); err == nil && !st.IsDir() {
					p = ""
				}
			}
			if p != "" {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(upper, p)), 0o755))
				if _, err := os.Lstat(filepath.Join(upper, p)); err != nil {
					must(t, mknodWhiteout(filepath.Join(upper, p)))
				}
			}
		}
	}
	for range 1 + rng.IntN(3) {
		p := filepath.Join(upper, "workspace", names[rng.IntN(len(names))], names[rng.IntN(3)])
		if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
			_ = os.WriteFile(p, []byte(id), 0o644) // when something else is in the way, there are changes enough
		}
	}
	tree, err := c.Tree(ctx, wire.TreeRequest{ID: id, Base: base.Commit.Commit, Upper: id + "/upper"})
	must(t, err)
	req := wire.PrepareRequest{ID: "p-" + id, Base: base.Commit.Commit, Tree: tree.Commit, Task: id}
	_, err = c.Prepare(ctx, req)
	must(t, err)
	must(t, c.Begin(ctx, req.ID))
	_, err = c.Apply(ctx, req.ID)
	must(t, err)
}
