package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestTheFirstTaskWaitsForNothingOfItsOwn shows that the first task of a new computer waits for
// nothing that later tasks need not wait for: the first checkpoint is checked out without a
// request, and the first file of a folder is not examined in a box.
func TestTheFirstTaskWaitsForNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	in := choirtest.Start(t, choirtest.Options{Data: data})
	layers := func() []string {
		marks, err := filepath.Glob(filepath.Join(data, "computers", "*", "snapshots", ".*.ok"))
		if err != nil {
			t.Fatal(err)
		}
		return marks
	}
	choirtest.Eventually(t, time.Minute, "the first checkpoint is checked out", func() bool { return len(layers()) == 1 })
	in.Must(t, "prompt", "--wait", `write "milk" to workspace/list.txt`)
	if opened := in.Must(t, "events", "--json", "--type", "box.opened"); strings.Count(opened, `"task"`) == 0 || strings.Contains(opened, `"verify"`) {
		t.Errorf("of the first task's boxes the log has:\n%s", opened)
	}
}
