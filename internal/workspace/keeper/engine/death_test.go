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

// TestADeathBeforeTheCheckLeavesWhatWasNotWanted kills a conditional removal between its move to the
// trash and its check of what it moved. The next start makes the check: what somebody wrote in
// between goes back to its place, and the content that was to be removed stays removed.
func TestADeathBeforeTheCheckLeavesWhatWasNotWanted(t *testing.T) {
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

// TestAPowerCutTakesNoRemovalOfAVersionBack: where the machine ended after a removal that names a
// version, what was removed may hold less than it did, or be older, for a program had not synced
// it, and still was acknowledged as removed. What a program wrote after the removal was asked for
// and before it was made stays where it is.
func TestAPowerCutTakesNoRemovalOfAVersionBack(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		point string // where the keeper ended; after the removal if empty
		boot  string // where it ran, if elsewhere than its next start
		cut   func(t *testing.T, c *computer, d string)
		lives string
	}{
		"everything is on disk": {boot: "before", cut: func(*testing.T, *computer, string) {}},
		"the content is in part": {boot: "before", cut: func(t *testing.T, c *computer, d string) {
			removed(t, filepath.Join(d, "took"))
			shortened(t, filepath.Join(d, "content"))
		}},
		"the content is in part, and the name is not": {boot: "before", cut: func(t *testing.T, c *computer, d string) {
			removed(t, filepath.Join(d, "took"))
			must(t, os.Rename(filepath.Join(d, "content"), c.path("a")))
			shortened(t, c.path("a"))
		}},
		"nothing but the journal is, and what is live is older": {boot: "before", cut: func(t *testing.T, c *computer, d string) {
			must(t, os.RemoveAll(d))
			c.write("a", "from before")
		}},
		"a program was faster": {point: "trash.intended", boot: "before", lives: "newer", cut: func(_ *testing.T, c *computer, _ string) {
			c.write("a", "newer")
		}},
		"a program was faster with another file": {point: "trash.moved", boot: "before", lives: "newer", cut: func(t *testing.T, c *computer, d string) {
			c.save("other", "newer")
			must(t, os.Rename(c.path("other"), filepath.Join(d, "content")))
		}},
		"a program was faster, within the clock's resolution, and the keeper was killed": {point: "trash.intended", lives: "fir", cut: func(t *testing.T, c *computer, _ string) {
			shortened(t, c.path("a"))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			c := open(t)
			c.write("a", "first")
			must(t, c.Close())
			c.Engine = nil
			spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: tt.point, Nth: 1, Do: "acts", To: "remove-if a", Boot: tt.boot}
			if !runChild(t, spec) {
				t.Fatal("it was not killed")
			}
			entries, err := filepath.Glob(c.path(".git/choir/trash/2*"))
			if err != nil || len(entries) != 1 {
				t.Fatalf("the trash has %v, %v", entries, err)
			}
			tt.cut(t, c, entries[0])
			for range 2 {
				c.reopen()
				b, err := os.ReadFile(c.path("a"))
				if string(b) != tt.lives || os.IsNotExist(err) != (tt.lives == "") {
					t.Errorf("it holds %q, %v; want %q", b, err, tt.lives)
				}
				told, err := c.UnloggedOperations(t.Context())
				if err != nil || (len(told) == 1) != (tt.lives == "") {
					t.Errorf("told: %+v, %v", told, err)
				}
			}
		})
	}
}

// shortened leaves a part of a file, which is dated as it was.
func shortened(t *testing.T, name string) {
	t.Helper()
	st, err := os.Stat(name)
	must(t, err)
	must(t, os.Truncate(name, 3))
	must(t, os.Chtimes(name, st.ModTime(), st.ModTime()))
}

// TestARemovedVersionThatAProgramHasOpenStaysRemoved: what a program writes to a file that was
// removed as a version, and that it has had open all the while, does not bring it back.
func TestARemovedVersionThatAProgramHasOpenStaysRemoved(t *testing.T) {
	c := open(t)
	c.write("a", "first")
	f, err := os.OpenFile(c.path("a"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	is, err := c.Stat(t.Context(), "a")
	must(t, err)
	r, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "a", If: is.ID})
	must(t, err)
	_, err = f.WriteString("later")
	must(t, err)
	removed(t, c.path(".git/choir/trash/"+r.ID+"/took")) // no mark outlives a power cut that nobody waited for
	c.opts.Boot = func() (string, error) { return "after", nil }
	c.reopen()
	if _, err := os.Stat(c.path("a")); !os.IsNotExist(err) {
		t.Errorf("it is back: %v", err)
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
