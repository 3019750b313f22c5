package chaos_test

import (
	"testing"
)

// TestACommandsEndWaitsForTheDisk: the keeper dies in the moment in which it
// would sync what a command wrote. Nobody says then that the command has ended,
// neither to its caller nor in the log, for a power cut could still empty its
// files.
func TestACommandsEndWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := w.soon()
	defer cancel()
	w.arm("keeper.settling", 1)
	path := "workspace/e/unsettled.txt"
	if err := w.exec(ctx, path, "written", 0); err == nil {
		t.Error("the command was acknowledged")
	}
	if !w.disarm() {
		t.Fatalf("nothing was synced before the end of a command was told; passed were %v", w.passes())
	}
	h, err := readHistory(ctx, w.c)
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	for _, e := range h.events {
		switch e.Type {
		case "command.started":
			started++
		case "command.finished":
			t.Errorf("the log says %s", e.Data)
		}
	}
	if started != 1 {
		t.Errorf("%d commands were started", started)
	}
	w.end()
}
