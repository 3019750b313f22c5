package chaos_test

import (
	"testing"

	"choir.dev/choiros/internal/view"
)

// TestUndoAfterADeathAtACommandsEnd kills choir at each step of the end of a command: what
// the command did is what the next undo takes back, and nothing that was done before it.
func TestUndoAfterADeathAtACommandsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := w.soon()
	defer cancel()
	for _, point := range []string{"workspace.checkpoint.made", "computer.command.kept", "computer.command.finished"} {
		before, path := "before "+w.next(), "workspace/e/"+w.next()+".txt"
		for _, content := range []string{"older", before} {
			if err := w.put(ctx, "workspace/u/kept.txt", content); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := w.save(ctx, "before a command"); err != nil {
			t.Fatal(err)
		}
		w.arm(point, 1)
		err := w.exec(ctx, path, w.next(), 0)
		if !w.hit() {
			t.Fatalf("%s was not passed: %v, %v", point, err, w.passes())
		}
		w.dead(point)
		w.disarm()
		w.restart()
		did, err := w.c.Undo(ctx, false)
		if err != nil || did.Undone == nil || did.Undone.What != view.UndoneCommand {
			t.Fatalf("%s: undone was %+v, %v", point, did.Undone, err)
		}
		w.tree.is(path, gone)
		if got := w.mustRead("workspace/u/kept.txt"); got != before {
			t.Errorf("%s: what was put before the command holds %q; want %q", point, got, before)
		}
	}
	w.end()
}
