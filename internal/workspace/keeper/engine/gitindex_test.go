package engine_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestGitSeesACleanTreeAfterEachCheckpoint makes random changes, also in nested repositories and
// ignored files, and shows that for stock git nothing differs from the checkpoint that was just
// made or restored, and after an edit only that edit.
func TestGitSeesACleanTreeAfterEachCheckpoint(t *testing.T) {
	c := open(t)
	rnd := rand.New(rand.NewPCG(7, 7))
	c.write(".gitignore", "*.log\n")
	c.write("workspace/kept.txt", "kept\n")
	var first string
	for step := range 10 {
		for range 4 {
			edit(t, c, rnd)
		}
		nestedEdit(t, c, rnd)
		c.write("workspace/ignored.log", "x\n")
		if err := os.MkdirAll(c.path("workspace/empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		k := c.checkpoint("made")
		if first == "" {
			first = k.Commit.Commit
		}
		if said := stockGit(t, c.opts.Root, "status", "--porcelain"); said != "" {
			t.Fatalf("step %d: after a checkpoint git says\n%s", step, said)
		}
		if step == 5 {
			c.restore(wire.RestoreRequest{ID: "back", To: first})
			if said := stockGit(t, c.opts.Root, "status", "--porcelain"); said != "" {
				t.Fatalf("after going back git says\n%s", said)
			}
			c.reopen()
		}
	}
	c.write("workspace/kept.txt", "other\n")
	if said := stockGit(t, c.opts.Root, "status", "--porcelain"); strings.TrimSpace(said) != "M workspace/kept.txt" {
		t.Errorf("after an edit git says\n%s", said)
	}
	c.checkpoint("edited")
	st, err := os.Stat(filepath.Join(c.opts.Root, ".git/index"))
	if err != nil || st.Size() > 4096 {
		t.Errorf("the index is %v bytes (%v): more than what changed", st.Size(), err)
	}
}

// TestGitSeesLargeFilesAsClean shows that stock git calls no large file of a checkpoint
// untracked, whatever its name, also after a start; that one which no checkpoint has is, and
// that one which was removed or became small is not left out any more.
func TestGitSeesLargeFilesAsClean(t *testing.T) {
	c := open(t, lowThreshold)
	status := func() string { return stockGit(t, c.opts.Root, "status", "--porcelain") }
	c.write("workspace/small", "small\n")
	c.checkpoint("small")
	awkward := []string{"workspace/big.bin", "workspace/a [b] *?!#\\ ", "workspace/two\nlines\tand\rmore", "workspace/!x/#y", "workspace/repo/in it", " at the top "}
	for i, name := range awkward {
		c.write(name, noise(byte(i), large+i+1))
	}
	stockGit(t, c.path("workspace/repo"), "init", "-q")
	if said := status(); said == "" {
		t.Fatal("git says nothing of what no checkpoint has")
	}
	c.checkpoint("large")
	if said := status(); said != "" {
		t.Errorf("after a checkpoint git says\n%s", said)
	}
	c.reopen()
	c.write("workspace/b", noise(9, large+1)) // a pattern that was not quoted would match it
	if said := strings.TrimSpace(status()); said != "?? workspace/b" {
		t.Errorf("after another large file git says\n%s", said)
	}
	c.write("workspace/big.bin", "small now\n")
	if err := os.Remove(c.path(awkward[1])); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("changed")
	if said := status(); said != "" {
		t.Errorf("after the next checkpoint git says\n%s", said)
	}
	c.write("workspace/big.bin", "small and changed\n")
	c.write(awkward[1], "small")
	if said := status(); !strings.Contains(said, " M workspace/big.bin\n") || strings.Count(said, "\n") != 2 {
		t.Errorf("after what was large changed git says\n%s", said)
	}
}
