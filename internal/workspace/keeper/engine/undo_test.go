package engine_test

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestUndoOfAPutLeavesWhatCameAfter: undoing a put where nothing was removes what was
// put, and nothing that somebody has made of it since.
func TestUndoOfAPutLeavesWhatCameAfter(t *testing.T) {
	c := open(t)
	w, err := c.Write(c.ctx(), wire.WriteRequest{Path: "new"}, strings.NewReader("put"))
	if err != nil {
		t.Fatal(err)
	}
	for what, then := range map[string]func(){
		"a program": func() { c.write("new", "edited since") },
		"a put": func() {
			if _, err := c.Write(c.ctx(), wire.WriteRequest{Path: "new"}, strings.NewReader("edited since")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		then()
		for _, dry := range []bool{true, false} {
			if r, err := c.Undo(c.ctx(), wire.UndoRequest{Op: "write", ID: w.Op, Path: "new", DryRun: dry}); !fault.Is(err, fault.Conflict) {
				t.Errorf("after %s (dry %v): %+v, %v", what, dry, r, err)
			}
		}
		if got := c.read("new"); got != "edited since" {
			t.Errorf("after %s there is %q", what, got)
		}
	}
	c.write("new", "put")
	if _, err := c.Undo(c.ctx(), wire.UndoRequest{Op: "write", ID: w.Op, Path: "new"}); err != nil {
		t.Errorf("what was put is there again: %v", err)
	}
	if _, err := os.Lstat(c.path("new")); !os.IsNotExist(err) {
		t.Errorf("it stays: %v", err)
	}
}
