package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copied has the computer go on from a copy of all its files.
func (c *computer) copied() {
	c.t.Helper()
	to := c.t.TempDir()
	if out, err := exec.CommandContext(c.t.Context(), "cp", "-a", c.opts.Root+"/.", to).CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	c.opts.Root = to
}

// TestACopyAfterAPowerCutHoldsWhatWasPut starts from a copy of what a power cut left, as a backup
// from a snapshot of a file system is one. No inode is the same there. After a start each
// acknowledged put must be live, or in the history where the copy does not say whether it was
// removed since.
func TestACopyAfterAPowerCutHoldsWhatWasPut(t *testing.T) {
	t.Parallel()
	for what, lose := range lost {
		t.Run(what, func(t *testing.T) {
			c := open(t)
			c.write("a", "first")
			puts := putAndDie(t, c, 0, "a", "fresh", "a", "fresh")
			for _, p := range slices.Backward(puts) {
				p.takeBack(t, c)
			}
			for _, p := range puts {
				lose(t, c, p)
			}
			c.copied()
			for range 2 {
				c.wake()
				if a := c.read("a"); a != "put 2" {
					t.Errorf("a holds %q", a)
				}
				if fresh, err := os.ReadFile(c.path("fresh")); string(fresh) != "put 3" {
					t.Errorf("fresh holds %q, %v", fresh, err)
				}
			}
			c.checkpoint("after")
			all := everything(t, c)
			for _, want := range []string{"first", "put 0", "put 1", "put 2", "put 3"} {
				if !strings.Contains(all, want) {
					t.Errorf("%q is nowhere", want)
				}
			}
			if left, err := filepath.Glob(c.path(".git/choir/trash/*/redo")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestWhatIsNewerThanAPutStaysInACopy shows that in a copy, too, nothing is put over what came
// after a put whose exchange reached the disk, or after a put of the same content, or over what a
// program wrote when the put had not been acknowledged.
func TestWhatIsNewerThanAPutStaysInACopy(t *testing.T) {
	t.Parallel()
	newer := func(c *computer, p string) { c.write(p, "newer") }
	for what, try := range map[string]struct {
		first string
		back  bool
		does  func(c *computer, p string)
		want  string
	}{
		"written":                      {"first", false, newer, "newer"},
		"written, put as it was":       {"put 0", false, newer, "newer"},
		"written, put was not at work": {"first", true, newer, "newer"},
		"removed":                      {"first", false, func(c *computer, p string) { removed(t, c.path(p)) }, ""},
		"removed, put as it was":       {"put 0", false, func(c *computer, p string) { removed(t, c.path(p)) }, ""},
		"new, removed":                 {"", false, func(c *computer, p string) { removed(t, c.path(p)) }, ""},
		"new, written":                 {"", false, newer, "newer"},
	} {
		t.Run(what, func(t *testing.T) {
			c := open(t)
			if try.first != "" {
				c.write("a", try.first)
			}
			puts := putAndDie(t, c, 0, "a")
			if try.back {
				puts[0].takeBack(t, c)
			}
			try.does(c, "a")
			c.copied()
			for range 2 {
				c.wake()
				if got, _ := os.ReadFile(c.path("a")); string(got) != try.want {
					t.Errorf("a holds %q", got)
				}
			}
			c.checkpoint("after")
			if !strings.Contains(everything(t, c), "put 0") {
				t.Error("what was put is nowhere")
			}
		})
	}
}
