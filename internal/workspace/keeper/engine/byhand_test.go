package engine_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestWhatIsWrittenByHandAfterAPowerCutStays has the machine end after acts of which nothing came to
// the disk, and somebody write a file by hand, before the first start or after one that died over
// doing the acts again. Doing them again would put what is older over it. What was put is in the
// next checkpoint; the acts of other paths are done.
func TestWhatIsWrittenByHandAfterAPowerCutStays(t *testing.T) {
	t.Parallel()
	write := func(c *computer, p string) { c.write(p, "by hand") }
	for _, kill := range []string{"", "journal.synced"} {
		for what, edit := range map[string]func(c *computer, p string){"in place": write, "as an editor does": func(c *computer, p string) { c.save(p, "by hand") }} {
			for act, p := range map[string]string{"put a": "a", "remove a": "a", "move a d/b": "a", "move folder/x new": "new"} {
				t.Run(strings.Join([]string{act, what, kill}, ", "), func(t *testing.T) {
					c, all := actAndDie(t, "put other", act, "put last")
					cutTo(t, c, all, 0, false)
					c.write(".git/choir/open", "another boot")
					if kill != "" && !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: kill, Nth: 1}) {
						t.Fatal("it was not killed")
					}
					edit(c, p)
					for range 2 {
						c.wake()
						if got, o, l := c.read(p), c.read("other"), c.read("last"); got != "by hand" || o != "put 0" || l != "put 2" {
							t.Errorf("%s holds %q, other %q and last %q", p, got, o, l)
						}
					}
					if _, err := os.Lstat(c.path("folder/x")); err != nil {
						t.Errorf("what was not moved: %v", err)
					}
					c.checkpoint("after")
					if act == "put a" && !strings.Contains(everything(t, c), "put 1") {
						t.Error("what was put is nowhere")
					}
				})
			}
		}
	}
}

// TestWhatAStartPutIsNotByHand shows that a start which goes on where one died does the acts after
// the last one that was done, over what that start made: that was not written by hand.
func TestWhatAStartPutIsNotByHand(t *testing.T) {
	t.Parallel()
	for nth := range int32(6) {
		c, all := actAndDie(t, "put a", "put a", "move a b", "put b", "move b a", "put a")
		cutTo(t, c, all, 0, false)
		c.write(".git/choir/open", "another boot")
		if !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: "journal.synced", Nth: nth + 1}) && nth < 4 {
			t.Fatal("it was not killed")
		}
		c.wake()
		if got := c.read("a"); got != "put 5" {
			t.Errorf("killed at %d: a holds %q", nth+1, got)
		}
	}
}

// TestWhatAMoveMetStaysThoughItIsNotDone: a start moved to the trash what had the new name of a move,
// and died before it moved the file, which somebody then wrote anew. The move is not done, and what
// it had met is not lost.
func TestWhatAMoveMetStaysThoughItIsNotDone(t *testing.T) {
	t.Parallel()
	c, all := actAndDie(t, "move a d/b")
	cutTo(t, c, all, 0, true)
	c.write("d/b", "older")
	must(t, os.Rename(c.path("d/b"), all[0].content(c)))
	c.save("a", "newer")
	for range 2 {
		c.reopen()
		if got := trashed(t, c)["d/b"]; got != "older" || c.read("a") != "newer" {
			t.Errorf("the trash holds %q, and a %q", got, c.read("a"))
		}
	}
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) != 0 {
		t.Errorf("told: %+v, %v", operations, err)
	}
	trash, err := c.Trash(t.Context(), wire.TrashRequest{})
	must(t, err)
	_, err = c.Untrash(t.Context(), wire.UntrashRequest{ID: trash.Items[0].ID})
	must(t, err)
	if got := c.read("d/b"); got != "older" {
		t.Errorf("brought back: %q", got)
	}
}

// TestADateAheadIsNotByHand: a file can have a date that is to come, such as out of an archive that was
// made elsewhere. It was there before the machine's end all the same, so the acts on it are done again.
func TestADateAheadIsNotByHand(t *testing.T) {
	t.Parallel()
	for act, want := range map[string]map[string]string{
		"put a":      {"a": "put 0", "folder/x": "x"},
		"remove a":   {"folder/x": "x"},
		"move a d/b": {"d/b": "first", "folder/x": "x"},
	} {
		t.Run(act, func(t *testing.T) {
			c := open(t)
			c.write("a", "first")
			c.write("folder/x", "x")
			now := time.Now()
			must(t, os.Chtimes(c.path("a"), now, now.Add(2*time.Hour)))
			c.checkpoint("before")
			// The acts are later than what this test does to the file, for when that was can't be set.
			c.opts.Now = func() time.Time { return time.Now().Add(time.Hour) }
			var all []done
			for _, p := range actsAndDie(t, c, "acts", 0, act) {
				op, rest, _ := strings.Cut(act, " ")
				from, _, _ := strings.Cut(rest, " ")
				all = append(all, done{p, op, from})
			}
			cutTo(t, c, all, 0, false)
			c.write(".git/choir/open", "another boot")
			for range 2 {
				c.wake()
				lives(t, c, want)
			}
		})
	}
}
