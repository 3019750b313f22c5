package engine_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestWhatAMessageSaysIsNoRestore shows that a restore can be undone whatever somebody wrote into
// the messages of later checkpoints.
func TestWhatAMessageSaysIsNoRestore(t *testing.T) {
	c := open(t)
	c.write("a", "first")
	first := c.checkpoint("first")
	c.write("a", "second")
	c.restore(wire.RestoreRequest{ID: "back", To: first.Commit.Commit})
	for range 51 {
		c.write("b", c.read("a")+"x")
		if k, err := c.Checkpoint(c.ctx(), wire.CheckpointRequest{Force: true, Note: wire.Note{Kind: "manual", Message: "About restores\nChoir-Restore: {}"}}); err != nil || !k.Created {
			t.Fatal(err)
		}
	}
	c.restore(wire.RestoreRequest{ID: "undo", Undo: true})
	if got := c.read("a"); got != "second" {
		t.Errorf("undone, a holds %q", got)
	}
}

// TestUndoingALargeUndoLeavesTheRest shows that when more was taken back than a restore names,
// undoing that restore leaves what was done elsewhere since.
func TestUndoingALargeUndoLeavesTheRest(t *testing.T) {
	c := open(t)
	c.write("other", "first")
	c.checkpoint("first")
	for n := range 250 {
		c.write(fmt.Sprintf("made/%d", n), "made")
	}
	made := c.checkpoint("made")
	c.restore(wire.RestoreRequest{ID: "taken", Revert: []wire.Reverted{{Commit: made.Commit.Commit}}})
	for n, id := range []string{"back", "again", "once-more"} {
		edited := fmt.Sprintf("edited %d times since", n+1)
		c.write("other", edited)
		c.restore(wire.RestoreRequest{ID: id, Undo: true})
		if got := c.read("other"); got != edited {
			t.Errorf("%s: what has nothing to do with it holds %q", id, got)
		}
		if _, err := os.Lstat(c.path("made/249")); (err == nil) != (n%2 == 0) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestUndoLeavesAnEmptyFolder shows that a folder that was empty before something was made in it is
// empty again when that is taken back, and that it stays as it is when somebody has put something
// else there meanwhile.
func TestUndoLeavesAnEmptyFolder(t *testing.T) {
	c := open(t)
	c.write("other", "first")
	for _, d := range []string{"empty", "used"} {
		if err := os.Mkdir(c.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.checkpoint("first")
	c.write("empty/deep/a", "a")
	c.write("used/deep/a", "a")
	made := c.checkpoint("made")
	c.write("used/mine", "mine")
	c.restore(wire.RestoreRequest{ID: "taken", Revert: []wire.Reverted{{Commit: made.Commit.Commit}}})
	for d, want := range map[string][]string{"empty": nil, "used": {"mine"}} {
		entries, err := os.ReadDir(c.path(d))
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%s holds %q, want %q: %v", d, names, want, err)
		}
	}
	c.reopen()
	if again := c.checkpoint("nothing"); again.Commit.Commit != c.checkpoint("nothing either").Commit.Commit {
		t.Error("a checkpoint without a change")
	}
}
