package chaos_test

import (
	"testing"
)

// TestACommandsEndWaitsForTheDisk: the keeper dies when it should sync what a command wrote. The
// end of the command is then reported neither to its caller nor in the log, because a power cut
// could still empty its files. It is reported once the next keeper has synced them.
func TestACommandsEndWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := w.soon()
	defer cancel()
	w.arm("keeper.settling", 1)
	err := w.exec(ctx, "workspace/e/unsettled.txt", "written", 0)
	if !w.disarm() {
		t.Fatalf("nothing was synced before the end of a command was told; passed were %v", w.passes())
	}
	if n := w.passes()["keeper.settling"]; err != nil || n != 2 {
		t.Errorf("after %d tries to sync it the command answers: %v", n, err)
	}
	h, err := readHistory(ctx, w.c)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, e := range h.events {
		said[e.Type]++
	}
	if said["command.started"] != 1 || said["command.finished"] != 1 {
		t.Errorf("the log says %v", said)
	}
	w.end()
}
