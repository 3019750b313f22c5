package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestADeathBeforeTheLookLeavesWhatWasNotWanted kills a conditional removal between its move to the
// trash and its check of what it moved. The next start makes the check: what somebody wrote in
// between goes back to its place, and the content that was to be removed stays removed.
func TestADeathBeforeTheLookLeavesWhatWasNotWanted(t *testing.T) {
	for _, changed := range []bool{true, false} {
		dead := filepath.Join(t.TempDir(), "dead")
		armed, wrote := false, false
		var c *computer
		c = open(t, func(o *engine.Options) {
			o.Crash = func(point string) {
				if !armed {
					return
				}
				if changed && !wrote {
					wrote = true
					c.write("file", "newer")
				}
				if point == "trash.moved" {
					armed = false
					if out, err := exec.CommandContext(t.Context(), "cp", "-a", o.Root, dead).CombinedOutput(); err != nil {
						t.Errorf("cp: %v: %s", err, out)
					}
				}
			}
		})
		c.write("file", "older")
		w, err := c.Stat(c.ctx(), "file")
		if err != nil {
			t.Fatal(err)
		}
		armed = true
		if _, err := c.Remove(c.ctx(), wire.RemoveRequest{Path: "file", If: w.ID}); changed != fault.Is(err, fault.Conflict) {
			t.Errorf("changed %t: %v", changed, err)
		}
		e, err := engine.Open(c.ctx(), engine.Options{Root: dead, Snapshots: t.TempDir(), Uppers: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dead, "file"))
		if changed && string(b) != "newer" || !changed && !os.IsNotExist(err) {
			t.Errorf("changed %t: after the death it holds %q, %v", changed, b, err)
		}
		list, err := e.Trash(c.ctx(), wire.TrashRequest{})
		if err != nil || (len(list.Items) == 0) != changed {
			t.Errorf("changed %t: the trash has %+v, %v", changed, list.Items, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAPlanIsForgottenFromItsBeginning shows that of a finished plan first the mark that it was
// begun is removed, and last the list of what was to be done. A power cut in between, on a file
// system that keeps the order, therefore leaves no plan that a start would carry out again.
func TestAPlanIsForgottenFromItsBeginning(t *testing.T) {
	c := open(t)
	c.write("file", "one")
	first := c.checkpoint("one").Commit.Commit
	c.write("file", "two")
	second := c.checkpoint("two").Commit.Commit
	c.restore(wire.RestoreRequest{ID: "plan", To: first})
	dir := c.path(".git/choir/publish/plan")
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	c.restore(wire.RestoreRequest{ID: "plan", To: second}) // this replaces the plan before it
	buf := make([]byte, 4096)
	n, err := unix.Read(watch, buf)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, name := range []string{"started", "result.json", "plan.json"} {
		order = append(order, name)
		if !strings.Contains(string(buf[:n]), name) {
			t.Errorf("%s was not removed", name)
		}
	}
	got := slices.Clone(order)
	slices.SortFunc(got, func(a, b string) int { return strings.Index(string(buf[:n]), a) - strings.Index(string(buf[:n]), b) })
	if !slices.Equal(got, order) {
		t.Errorf("it goes in the order %v", got)
	}
}
