package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAnEmptyFileThatWasPutStaysWhereverItIsMoved has the machine end after files were put empty
// and moved, by themselves or with a folder above them, before any checkpoint. What a put meant to
// be empty is not taken for what the cut emptied: it is in the next checkpoint, and stays where a
// checkpoint has other content. That holds when none of the changes of names came to the disk, when
// the first start dies, and in a copy of all files.
func TestAnEmptyFileThatWasPutStaysWhereverItIsMoved(t *testing.T) {
	t.Parallel()
	for what, try := range map[string]struct{ acts, at string }{
		"not moved":                          {"empty new", "new"},
		"moved":                              {"empty new, move new b", "b"},
		"moved twice":                        {"empty new, move new b, move b d/c", "d/c"},
		"its folder is moved":                {"empty d/new, move d e", "e/new"},
		"it and its folder are moved":        {"empty d/new, move d/new d/b, move d e, move e/b f", "f"},
		"moved over what a checkpoint has":   {"remove a, empty new, move new a", "a"},
		"moved to what was moved away":       {"move a old, empty new, move new a", "a"},
		"below a folder that another had":    {"empty d/x, remove folder, move d folder", "folder/x"},
		"removed and brought back":           {"empty new, remove new, back new", "new"},
		"moved, removed and brought back":    {"empty new, move new b, remove b, back b", "b"},
		"settled, then moved":                {"empty new, settle, move new b", "b"},
		"moved and logged, then moved":       {"empty new, move new b, tell, settle, move b c", "c"},
		"made by a program, settled, moved":  {"program new, settle, move new b", "b"},
		"made by a program, its folder goes": {"program d/new, settle, move d e", "e/new"},
	} {
		for _, how := range []string{"", "none of it on disk", "killed", "copied"} {
			acts := strings.Split(try.acts, ", ")
			onDisk := slices.ContainsFunc(acts, func(a string) bool {
				return strings.HasPrefix(a, "settle") || strings.HasPrefix(a, "back") || strings.HasPrefix(a, "program")
			})
			if how != "" && onDisk {
				continue
			}
			t.Run(what+" "+how, func(t *testing.T) {
				c := open(t)
				c.write("a", "first")
				c.write("folder/x", "x")
				c.checkpoint("before")
				var all []done
				for _, p := range actsAndDie(t, c, "acts", 0, acts...) {
					var m struct{ Op, From string }
					readJSON(t, filepath.Join(p.entry(c), "meta.json"), &m)
					all = append(all, done{p, m.Op, m.From})
				}
				switch how {
				case "none of it on disk":
					cutTo(t, c, all, 0, false)
				case "copied":
					c.copied()
				}
				c.write(".git/choir/open", "another boot")
				if how == "killed" && !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: "puts.synced", Nth: 1}) {
					t.Fatal("it was not killed")
				}
				c.reopen()
				h, err := c.Heal(t.Context())
				must(t, err)
				if len(h.Healed)+len(h.Suspect)+len(h.Lost) > 0 {
					t.Errorf("taken for what the cut emptied: %+v", h)
				}
				if b, err := os.ReadFile(c.path(try.at)); err != nil || len(b) > 0 {
					t.Errorf("%s holds %q, %v", try.at, b, err)
				}
				c.checkpoint("after")
				if got := c.inHistory(try.at); got[0] != "" {
					t.Errorf("the checkpoint has %q", got[0])
				}
			})
		}
	}
}

// TestWhatAPowerCutEmptiedIsFoundBesideWhatWasPut shows that a file of a program's that the cut
// emptied is still told from what was put empty beside it, also at a path from which that was moved.
func TestWhatAPowerCutEmptiedIsFoundBesideWhatWasPut(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.write("a", "first")
	c.checkpoint("before")
	actsAndDie(t, c, "acts", 0, "empty d/new", "move d e")
	c.write("a", "")
	c.write("e/program", "")
	c.write(".git/choir/open", "another boot")
	c.reopen()
	h, err := c.Heal(t.Context())
	must(t, err)
	if len(h.Healed) != 1 || h.Healed[0].Path != "a" || len(h.Suspect) != 1 || h.Suspect[0].Path != "e/program" {
		t.Errorf("found: %s", fmt.Sprintf("%+v", h))
	}
}
