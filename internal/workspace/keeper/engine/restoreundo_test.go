package engine_test

import (
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestWhatAMessageSaysIsNoRestore: a restore is undone whatever somebody wrote into
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
