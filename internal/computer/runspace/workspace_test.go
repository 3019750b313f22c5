package runspace

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestOnlyAnAttemptsOverlayIsTakenForOne: attempts' overlays are swept, and the folders of other
// boxes lie beside them.
func TestOnlyAnAttemptsOverlayIsTakenForOne(t *testing.T) {
	task := contract.NewID()
	for name, want := range map[string]bool{
		overlayID(ports.TaskRef{Task: task, Attempt: 1}): true, overlayID(ports.TaskRef{Task: task, Attempt: 12}): true,
		task: false, task + "-": false, task + "-0": false, "add-" + task: false, "d-" + task + "-1": false, task + "-1-check": false, "keeper-1": false, "": false,
	} {
		if got := isOverlayID(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
