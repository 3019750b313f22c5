package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// acts are what the child of actAndDie does: puts, removals and moves of files and of folders.
var acts = []string{
	"put a", "move a d/b", "put a", "remove a", "remove folder", "put folder/new", "move d e", "remove-if e/b", "move folder d",
}

// livesAfter says which files of the tree hold what after each number of acts.
var livesAfter = []map[string]string{
	{"a": "first", "folder/x": "x"},
	{"a": "put 0", "folder/x": "x"},
	{"d/b": "put 0", "folder/x": "x"},
	{"a": "put 2", "d/b": "put 0", "folder/x": "x"},
	{"d/b": "put 0", "folder/x": "x"},
	{"d/b": "put 0"},
	{"d/b": "put 0", "folder/new": "put 5"},
	{"e/b": "put 0", "folder/new": "put 5"},
	{"folder/new": "put 5"},
	{"d/new": "put 5"},
}

// done is an act whose names nobody waited for, as its records in the trash say.
type done struct {
	pending
	op, from string
}

// actAndDie has a child do the acts and end with SIGKILL, and returns them in their turn.
func actAndDie(t *testing.T, acts ...string) (*computer, []done) {
	t.Helper()
	c := open(t)
	c.write("a", "first")
	c.write("folder/x", "x")
	c.checkpoint("before")
	var out []done
	for _, p := range actsAndDie(t, c, "acts", 0, acts...) {
		var m struct{ Op, From string }
		readJSON(t, filepath.Join(p.entry(c), "meta.json"), &m)
		out = append(out, done{p, m.Op, m.From})
	}
	if len(out) != len(acts) {
		t.Fatalf("%d acts are not known to be on disk", len(out))
	}
	return c, out
}

// undo undoes what an act did to names: the power cut came before they were on disk.
func (d done) undo(t *testing.T, c *computer) {
	t.Helper()
	switch d.op {
	case "remove":
		must(t, unix.Renameat2(unix.AT_FDCWD, d.content(c), unix.AT_FDCWD, c.path(d.path), unix.RENAME_NOREPLACE))
	case "move":
		must(t, unix.Renameat2(unix.AT_FDCWD, c.path(d.path), unix.AT_FDCWD, c.path(d.from), unix.RENAME_NOREPLACE))
	default:
		d.takeBack(t, c)
	}
	removed(t, filepath.Join(d.entry(c), "took"))
}

// emptied removes the folder that an act made, which has nothing in it any more.
func (d done) emptied(c *computer) { _ = os.Remove(filepath.Dir(c.path(d.path))) }

// cutTo leaves of what acts did to names what the first of them did, and the folder of the next
// one's entry; without that, the last one's mark that it took place is lost too.
func cutTo(t *testing.T, c *computer, all []done, kept int, folder bool) {
	t.Helper()
	for i, d := range slices.Backward(all) {
		if i < kept {
			if !folder {
				removed(t, filepath.Join(d.entry(c), "took"))
			}
			return
		}
		d.undo(t, c)
		if i > kept || !folder {
			removed(t, d.entry(c))
			d.emptied(c)
		}
	}
}

// TestWhatAMoveMeetsIsOlder: where nothing of a move came to the disk, what has the new name is
// older, for a program's removal of it was lost. It goes to the trash.
func TestWhatAMoveMeetsIsOlder(t *testing.T) {
	t.Parallel()
	c, all := actAndDie(t, "move a d/b")
	cutTo(t, c, all, 0, false)
	c.write("d/b", "older")
	for range 2 {
		c.reopen()
		lives(t, c, map[string]string{"d/b": "first", "folder/x": "x"})
		if got := trashed(t, c)["d/b"]; got != "older" {
			t.Errorf("the trash holds %q", got)
		}
		must(t, c.OperationsLogged(t.Context(), []string{all[0].id})) // which does not remove it
	}
}

// TestWhatWasPutAgainIsRemovedAndMovedAgain: where the new file of a put was lost, another one is
// made, which a removal and a move recorded another inode of.
func TestWhatWasPutAgainIsRemovedAndMovedAgain(t *testing.T) {
	t.Parallel()
	for act, want := range map[string]map[string]string{
		"remove a":   {"folder/x": "x"},
		"move a d/b": {"d/b": "put 0", "folder/x": "x"},
	} {
		c, all := actAndDie(t, "put a", act)
		for _, d := range slices.Backward(all) {
			d.undo(t, c)
		}
		lost["content"](t, c, all[0].pending)
		c.reopen()
		lives(t, c, want)
		if got := everything(t, c); !strings.Contains(got, "put 0") || !strings.Contains(got, "first") {
			t.Errorf("%s: what was put and what was there are not both somewhere", act)
		}
	}
}

// lives compares the files of the tree.
func lives(t *testing.T, c *computer, want map[string]string) {
	t.Helper()
	for _, p := range []string{"a", "d/b", "d/new", "e/b", "folder/x", "folder/new"} {
		b, err := os.ReadFile(c.path(p))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			t.Fatal(err)
		}
		if string(b) != want[p] {
			t.Errorf("%s holds %q; want %q", p, b, want[p])
		}
	}
}

// TestAPowerCutKeepsWhatWasRemovedAndMoved has the machine end after puts, removals and moves
// that were acknowledged, with each number of their changes of names on disk, in the order in
// which they were made, with or without the folder of the next one's entry. The first start may
// die. After the next everything is as it was acknowledged, is told once, and can be undone.
func TestAPowerCutKeepsWhatWasRemovedAndMoved(t *testing.T) {
	t.Parallel()
	for kept := range len(acts) + 1 {
		for _, folder := range []bool{true, false} {
			for _, kill := range []string{"", "journal.synced", "puts.synced"} {
				if kept == len(acts) && !folder || kept%4 != 0 && kill == "journal.synced" {
					continue
				}
				t.Run(fmt.Sprintf("%d kept, the next one's folder %v, killed %s", kept, folder, kill), func(t *testing.T) {
					c, all := actAndDie(t, acts...)
					cutTo(t, c, all, kept, folder)
					lives(t, c, livesAfter[kept])
					if kill != "" && !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: kill, Nth: 1}) {
						t.Fatal("it was not killed")
					}
					for range 2 { // it stays so
						c.reopen()
						lives(t, c, livesAfter[len(acts)])
						operations, err := c.UnloggedOperations(t.Context())
						if err != nil || len(operations) != len(acts) {
							t.Errorf("%d changes are told, %v", len(operations), err)
						}
					}
					if left, err := filepath.Glob(c.path(".git/choir/trash/*/redo")); err != nil || len(left) > 0 {
						t.Errorf("left: %v, %v", left, err)
					}
					undoActs(t, c, all)
				})
			}
		}
	}
}

// undoActs undoes acts from the last to the first, and looks at the files after each.
func undoActs(t *testing.T, c *computer, all []done) {
	t.Helper()
	var ids []string
	for i, d := range slices.Backward(all) {
		ids = append(ids, d.id)
		must(t, c.OperationsLogged(t.Context(), []string{d.id}))
		if _, err := os.Lstat(d.entry(c)); d.op == "move" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the entry of a move that was told stays: %v", err)
		}
		u := wire.UndoRequest{Op: d.op, ID: d.id, Path: wire.Path(d.path), From: wire.Path(d.from)}
		if _, err := c.Undo(t.Context(), u); err != nil {
			t.Fatalf("%s can't be undone: %v", acts[i], err)
		}
		d.emptied(c)
		lives(t, c, livesAfter[i])
	}
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || slices.ContainsFunc(operations, func(o wire.Operation) bool { return slices.Contains(ids, o.ID) }) {
		t.Errorf("told again: %+v, %v", operations, err)
	}
}

// TestACopyAfterAPowerCutHoldsWhatWasRemovedAndMoved: in a copy of all files no inode is what it
// was, and times tell what is older. A new file of whose put nothing was copied may have been
// removed since, so it is in the history only.
func TestACopyAfterAPowerCutHoldsWhatWasRemovedAndMoved(t *testing.T) {
	t.Parallel()
	for kept := range len(acts) + 1 {
		c, all := actAndDie(t, acts...)
		cutTo(t, c, all, kept, false)
		c.copied()
		c.wake()
		want := maps.Clone(livesAfter[len(acts)])
		if kept <= 5 {
			delete(want, "d/new")
		}
		lives(t, c, want)
		c.checkpoint("after")
		held := everything(t, c)
		for _, text := range []string{"first", "put 0", "put 2", "put 5"} {
			if !strings.Contains(held, text) {
				t.Errorf("%q is nowhere", text)
			}
		}
	}
}

// TestWhatIsNewerThanARemovalOrAMoveStays: what a program did after a removal or a move, of
// which everything came to the disk, or when nobody had acknowledged it, is left as it is.
func TestWhatIsNewerThanARemovalOrAMoveStays(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"", "trash.intended"} {
		for _, do := range []string{"remove", "move"} {
			for what, does := range map[string]func(c *computer){
				"another file has the name": func(c *computer) { c.save("a", "newer") },
				"another file has the name, and one the new name": func(c *computer) {
					c.save("a", "newer")
					c.save("d/b", "newer too")
				},
			} {
				t.Run(do+" "+point+", "+what, func(t *testing.T) {
					c := open(t)
					c.write("a", "first")
					c.write("d/x", "x")
					must(t, c.Close())
					c.Engine = nil
					spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: point, Nth: 1, Do: "acts", To: do + " a d/b"}
					if !runChild(t, spec) {
						t.Fatal("it was not killed")
					}
					does(c)
					want := picture(t, c.opts.Root)
					for range 2 {
						c.reopen()
						samePicture(t, picture(t, c.opts.Root), want)
					}
					told := 1
					if point != "" {
						told = 0
					}
					if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) != told {
						t.Errorf("told: %+v, %v", operations, err)
					}
					if do == "remove" && point == "" && !strings.Contains(everything(t, c), "first") {
						t.Error("what was removed is nowhere")
					}
				})
			}
		}
	}
}

// TestAFullDiskUndoesNoRemovalAndNoMove has the disk fill up at each page that a removal and a
// move write, and at each file that they make. What fails took no effect, and a start does not do
// it either; what succeeds stays, whatever a start can write.
func TestAFullDiskUndoesNoRemovalAndNoMove(t *testing.T) {
	if choirtest.SmallDisk(t, smallDisk) == "" {
		return
	}
	c := open(t)
	ctx := t.Context()
	failures := 0
	for n := range 16 {
		fill := choirtest.FillDisk
		if n%2 == 1 {
			fill = filesTo
		}
		c.write("a", "a")
		c.write("b", "b")
		free := fill(t, n/2)
		_, removal := c.Remove(ctx, wire.RemoveRequest{Path: "a"})
		_, move := c.Move(ctx, wire.MoveRequest{From: "b", To: "c"})
		free()
		for range 2 {
			for p, there := range map[string]bool{"a": removal != nil, "b": move != nil, "c": move == nil} {
				if _, err := os.Lstat(c.path(p)); (err == nil) != there {
					t.Errorf("with room for %d more: %s: %v; the removal: %v; the move: %v", n/2, p, err, removal, move)
				}
			}
			c.reopen()
		}
		operations, err := c.UnloggedOperations(ctx)
		must(t, err)
		want := 2
		for _, err := range []error{removal, move} {
			if err != nil {
				want, failures = want-1, failures+1
			}
		}
		if len(operations) != want {
			t.Errorf("with room for %d more %d of %d changes are told", n/2, len(operations), want)
		}
		for _, o := range operations {
			must(t, c.OperationsLogged(ctx, []string{o.ID}))
		}
		removed(t, c.path("c"))
	}
	if failures == 0 {
		t.Error("nothing failed")
	}
}
