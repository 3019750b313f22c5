package engine_test

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestUndoOfAPutLeavesWhatCameAfter shows that undoing a put where nothing was removes what was
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

// TestUndoOfAPutKnowsWhatWasTaken shows that undoing a put is refused when what it displaced was
// brought back at another place. Such a put is not taken for one that displaced nothing.
func TestUndoOfAPutKnowsWhatWasTaken(t *testing.T) {
	c := open(t)
	c.write("file", "before")
	w, err := c.Write(c.ctx(), wire.WriteRequest{Path: "file"}, strings.NewReader("put"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Untrash(c.ctx(), wire.UntrashRequest{ID: w.Op, To: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		if r, err := c.Undo(c.ctx(), wire.UndoRequest{Op: "write", ID: w.Op, Path: "file", DryRun: dry}); !fault.Is(err, fault.Conflict) {
			t.Errorf("(dry %v) %+v, %v", dry, r, err)
		}
	}
	if got, there := c.read("file"), c.read("elsewhere"); got != "put" || there != "before" {
		t.Errorf("it holds %q, and what was there %q", got, there)
	}
}

// TestUndoBringsALinkBack shows that undoing a put over a link brings the link back, that undoing
// this brings back what was put, and that a link that somebody changed since stays.
func TestUndoBringsALinkBack(t *testing.T) {
	c := open(t)
	c.write("real", "behind the link")
	if err := os.Symlink("real", c.path("link")); err != nil {
		t.Fatal(err)
	}
	w, err := c.Write(c.ctx(), wire.WriteRequest{Path: "link"}, strings.NewReader("put"))
	if err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		if got, err := os.Readlink(c.path("link")); want == "" && err == nil || want != "" && got != want {
			t.Errorf("it points to %q, %v; want %q", got, err, want)
		}
	}
	undo := func(id string, dry bool) wire.UndoReply {
		t.Helper()
		r, err := c.Undo(c.ctx(), wire.UndoRequest{Op: "write", ID: id, Path: "link", DryRun: dry})
		if err != nil || len(r.Changes) != 1 || r.Changes[0].Op != "modified" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	undo(w.Op, true)
	is("")
	back := undo(w.Op, false)
	is("real")
	again := undo(back.Operation.ID, false)
	is("")
	if got := c.read("link"); got != "put" {
		t.Errorf("undone twice it holds %q", got)
	}
	undo(again.Operation.ID, false)
	is("real")
	if got := c.read("real"); got != "behind the link" {
		t.Errorf("where it points there is %q", got)
	}
	if err := os.Remove(c.path("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", c.path("link")); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Undo(c.ctx(), wire.UndoRequest{Op: "write", ID: again.Operation.ID, Path: "link"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("another link by now: %+v, %v", r, err)
	}
	is("elsewhere")
}
