package engine_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// damages are what a disk may make of an object's file.
var damages = map[string]func(t *testing.T, name string){
	"is missing": func(t *testing.T, name string) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	},
	"can't be read": func(t *testing.T, name string) { // a flipped bit
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x10
		overwrite(t, name, b)
	},
	"can't be read ": func(t *testing.T, name string) { overwrite(t, name, nil) },
	"is other than its name": func(t *testing.T, name string) { // the content of another block
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		fmt.Fprint(z, "blob 6\x00other\n")
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		overwrite(t, name, b.Bytes())
	},
}

func overwrite(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (c *computer) object(rev string) string {
	c.t.Helper()
	id := strings.TrimSpace(stockGit(c.t, c.opts.Root, "rev-parse", rev))
	return c.path(".git/objects/" + id[:2] + "/" + id[2:])
}

// scrubAll does one pass in slices of one object each, which must end.
func (c *computer) scrubAll() []wire.Damage {
	c.t.Helper()
	var out []wire.Damage
	for n := 1; ; n++ {
		r, err := c.Scrub(c.t.Context(), wire.ScrubRequest{Objects: 1, Restart: n == 1})
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, r.Damaged...)
		if r.Objects > n {
			c.t.Fatalf("a slice of one object read more: %d after %d", r.Objects, n)
		}
		if r.Done {
			return out
		}
	}
}

// TestAScrubFindsWhatIsDamaged damages an object of each kind in each way. The scrub must find it
// by path and commit, and make it again from whatever holds it, or name it.
func TestAScrubFindsWhatIsDamaged(t *testing.T) {
	t.Parallel()
	for reason, damage := range damages {
		for _, test := range []struct{ name, rev, kind, path, healed string }{
			{"live file", "HEAD:workspace/live", "blob", "workspace/live", "the live file"},
			{"snapshot", "HEAD~1:workspace/old", "blob", "workspace/old", "a snapshot"},
			{"gone", "HEAD~2:workspace/live", "blob", "workspace/live", ""},
			{"folder", "HEAD:workspace", "tree", "workspace", "what the newest checkpoint holds"},
			{"old folder", "HEAD~2:workspace", "tree", "workspace", ""},
			{"commit", "HEAD~2", "commit", "", ""},
		} {
			t.Run(test.name+" "+reason, func(t *testing.T) {
				c := open(t)
				c.torn = test.healed == ""
				c.write("workspace/live", "one\n")
				c.write("workspace/old", "older\n")
				c.checkpoint("first")
				c.write("workspace/live", "two\n")
				c.write("workspace/old", "old\n")
				second := c.checkpoint("second")
				if _, err := c.Snapshot(t.Context(), second.Commit.Commit); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(c.path("workspace/old")); err != nil {
					t.Fatal(err)
				}
				c.checkpoint("third")
				if found := c.scrubAll(); len(found) > 0 {
					t.Fatalf("before anything is damaged it finds %+v", found)
				}
				name := c.object(test.rev)
				commit := strings.TrimSpace(stockGit(t, c.opts.Root, "rev-parse", strings.Split(test.rev, ":")[0]))
				damage(t, name)
				found := c.scrubAll()
				if len(found) != 1 {
					t.Fatalf("found %+v", found)
				}
				d := found[0]
				if d.Kind != test.kind || string(d.Path) != test.path || d.Commit != commit || d.Healed != test.healed || d.Reason != strings.TrimSpace(reason) && test.kind == "blob" {
					t.Errorf("found %+v; want %+v in %s, %s", d, test, commit, reason)
				}
				if again := c.scrubAll(); (len(again) == 0) != (test.healed != "") {
					t.Errorf("again: %+v", again)
				}
			})
		}
	}
}

// TestADamagedPackIsFound shows that damage in a pack, where most of the history is, is found.
func TestADamagedPackIsFound(t *testing.T) {
	c := open(t)
	c.torn = true
	text := strings.Repeat("what only the past holds, and there is much of it\n", 40)
	for i := range 60 {
		c.write(fmt.Sprintf("workspace/f%d", i), fmt.Sprint(i, text, i*i*i))
	}
	c.checkpoint("many")
	packs, err := filepath.Glob(c.path(".git/objects/pack/*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs: %v, %v", packs, err)
	}
	c.reopen()
	b, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	overwrite(t, packs[0], b)
	found := c.scrubAll()
	if len(found) == 0 {
		t.Fatal("a flipped bit in a pack is not found")
	}
	for _, d := range found {
		if d.Healed != "the live file" {
			t.Errorf("%+v is not made again", d)
		}
	}
	if again := c.scrubAll(); len(again) > 0 {
		t.Errorf("again: %+v", again)
	}
}

// TestASnapshotHealsWhatItNeeds shows that a snapshot heals a damaged object that it needs. Such an
// object once failed every task.
func TestASnapshotHealsWhatItNeeds(t *testing.T) {
	for reason, damage := range damages {
		if reason == "is other than its name" {
			continue // only a scrub compares contents
		}
		t.Run(reason, func(t *testing.T) {
			c := open(t)
			c.write("workspace/a", "a\n")
			r := c.checkpoint("a")
			damage(t, c.object("HEAD:workspace/a"))
			s, err := c.Snapshot(t.Context(), r.Commit.Commit)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(c.inLayers(s.Layers, "workspace/a")); err != nil || string(b) != "a\n" {
				t.Errorf("the snapshot holds %q, %v", b, err)
			}
		})
	}
}

// TestADamagedNewestCheckpoint damages what a start reads. The engine must open, say which
// checkpoint is undamaged, and do nothing else, and Repair must continue from there with the files
// as they are.
func TestADamagedNewestCheckpoint(t *testing.T) {
	t.Parallel()
	type damage struct {
		name string
		do   func(t *testing.T, c *computer)
	}
	var all []damage
	for reason, how := range damages {
		for _, rev := range []string{"HEAD", "HEAD^{tree}", "HEAD:workspace"} {
			all = append(all, damage{rev + " " + reason, func(t *testing.T, c *computer) { how(t, c.object(rev)) }})
		}
	}
	all = append(all,
		damage{"the branch is empty", func(t *testing.T, c *computer) { overwrite(t, c.path(".git/refs/heads/main"), nil) }},
		damage{"the branch is gone", func(t *testing.T, c *computer) {
			if err := os.Remove(c.path(".git/refs/heads/main")); err != nil {
				t.Fatal(err)
			}
		}},
		damage{"the branch names what is not there", func(t *testing.T, c *computer) {
			overwrite(t, c.path(".git/refs/heads/main"), []byte(strings.Repeat("a1", 20)+"\n"))
		}},
	)
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			c := open(t)
			c.torn = true
			c.write("workspace/a", "one\n")
			first := c.checkpoint("one")
			c.write("workspace/a", "two\n")
			second := c.checkpoint("two")
			if err := c.MarkLogged(t.Context(), second.Commit.Commit); err != nil {
				t.Fatal(err)
			}
			c.write("workspace/a", "three\n")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c.Engine = nil
			test.do(t, c)
			c.reopen()
			wholes := []string{first.Commit.Commit, second.Commit.Commit}
			_, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{})
			if !fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), wholes[0]) && !strings.Contains(err.Error(), wholes[1]) {
				t.Fatalf("a checkpoint on damage: %v", err)
			}
			refusesAsDamaged(t, c, first.Commit.Commit)
			if files, _, err := c.Files(t.Context(), wire.FilesRequest{Path: wire.Path("workspace")}); err != nil || len(files) != 1 {
				t.Errorf("files can't be read: %v, %v", files, err)
			}
			r, err := c.Repair(t.Context(), wire.RepairRequest{Seq: 3})
			if err != nil || r.Checkpoint == nil || r.From != wholes[0] && r.From != wholes[1] || r.Checkpoint.Parent != r.From {
				t.Fatalf("repaired: %+v, %v", r, err)
			}
			if got := c.read("workspace/a"); got != "three\n" {
				t.Errorf("the live file is %q", got)
			}
			kept := stockGit(t, c.opts.Root, "for-each-ref", "--format=%(objectname)", "refs/choir/damaged/")
			files, err := filepath.Glob(c.path(".git/choir/damaged/head-*"))
			if err != nil || kept == "" && len(files) == 0 {
				t.Errorf("what is damaged has no name any more: %v", err)
			}
			if again, err := c.Repair(t.Context(), wire.RepairRequest{}); err != nil || again.Checkpoint != nil {
				t.Errorf("again: %+v, %v", again, err)
			}
			c.reopen()
			if _, err := c.Unmarked(t.Context()); err != nil {
				t.Error(err)
			}
			c.restore(wire.RestoreRequest{ID: "r", To: r.From})
			if got := c.read("workspace/a"); got != "one\n" && got != "two\n" {
				t.Errorf("back at the whole one, the file is %q", got)
			}
		})
	}
}

// refusesAsDamaged checks that whatever needs the history says that it is damaged. whole is a
// checkpoint from before the damage.
func refusesAsDamaged(t *testing.T, c *computer, whole string) {
	t.Helper()
	for what, do := range map[string]func() error{
		"a put": func() error {
			_, err := c.Write(t.Context(), wire.WriteRequest{Path: "x"}, strings.NewReader(""))
			return err
		},
		"the list": func() error { _, err := c.List(t.Context(), wire.ListRequest{}); return err },
		"status":   func() error { _, err := c.Status(t.Context()); return err },
		"unlogged": func() error { _, err := c.Unlogged(t.Context()); return err },
		"unmarked": func() error { _, err := c.Unmarked(t.Context()); return err },
		"a restore": func() error {
			_, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "r", To: whole})
			return err
		},
	} {
		if err := do(); !fault.Is(err, fault.Damaged) {
			t.Errorf("%s on damage: %v", what, err)
		}
	}
}

// TestAKilledRepairIsGoneOnWith kills a repair right after it moved the branch. Any start must be
// able to continue from the history as it is then.
func TestAKilledRepairIsGoneOnWith(t *testing.T) {
	for _, rev := range []string{"HEAD", "HEAD^{tree}"} {
		t.Run(rev, func(t *testing.T) {
			c := open(t)
			c.torn = true
			c.write("workspace/a", "one\n")
			first := c.checkpoint("one")
			c.write("workspace/a", "two\n")
			second := c.checkpoint("two")
			if err := c.MarkLogged(t.Context(), second.Commit.Commit); err != nil {
				t.Fatal(err)
			}
			damages["is missing"](t, c.object(rev))
			died := false
			c.opts.Crash = func(point string) {
				if point == "repair.moved" {
					died = true
					panic(point)
				}
			}
			c.reopen()
			func() {
				defer func() { _ = recover() }()
				_, _ = c.Repair(t.Context(), wire.RepairRequest{Seq: 3})
			}()
			if !died {
				t.Fatal("the repair was not killed")
			}
			c.opts.Crash = nil
			c.reopen()
			if r, err := c.Repair(t.Context(), wire.RepairRequest{Seq: 3}); err != nil || r.Checkpoint != nil {
				t.Errorf("repaired twice: %+v, %v", r, err)
			}
			if _, err := os.Stat(c.path(wire.DamagedFile(second.Commit.Commit))); err != nil {
				t.Errorf("nothing says what was given up: %v", err)
			}
			list, err := c.Unmarked(t.Context())
			if err != nil || len(list) != 0 {
				t.Errorf("after the one that is whole, the log is to hear of %v, %v", list, err)
			}
			if r := c.checkpoint("three"); r.Parent != first.Commit.Commit {
				t.Errorf("it goes on from %s; want %s", r.Parent, first.Commit.Commit)
			}
			if got := c.read("workspace/a"); got != "two\n" {
				t.Errorf("the live file is %q", got)
			}
		})
	}
}

// TestAScrubGoesOnWhereItWas shows that a pass whose engine ends is continued by the next engine,
// and goes over everything once. A recorded place that can't be read counts as none.
func TestAScrubGoesOnWhereItWas(t *testing.T) {
	c := open(t)
	for i := range 10 {
		c.write(fmt.Sprintf("d%d/file", i%3), fmt.Sprintf("text %d\n", i))
		c.checkpoint("one")
	}
	all := func() (objects, slices int) {
		for {
			r, err := c.Scrub(t.Context(), wire.ScrubRequest{Objects: 7})
			if err != nil || len(r.Damaged) > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			slices++
			if r.Objects > 7*slices {
				t.Fatalf("%d objects after %d slices of 7", r.Objects, slices)
			}
			if r.Done {
				return r.Objects, slices
			}
			c.reopen()
		}
	}
	want := len(strings.Fields(stockGit(t, c.opts.Root, "rev-list", "--all", "--objects", "--no-object-names")))
	if got, slices := all(); got != want || slices < 4 {
		t.Errorf("a pass over %d objects in %d slices; the history has %d", got, slices, want)
	}
	if _, err := os.Lstat(c.path(".git/choir/scrub")); err == nil {
		t.Error("a pass that ended has a place")
	}
	if _, err := c.Scrub(t.Context(), wire.ScrubRequest{Objects: 7}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(c.path(".git/choir/scrub"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-3] ^= 1
	overwrite(t, c.path(".git/choir/scrub"), b)
	c.reopen()
	if got, _ := all(); got != want {
		t.Errorf("with a damaged place a pass went over %d objects of %d", got, want)
	}
}
