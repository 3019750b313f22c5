package engine_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// marks lists a folder's entries that no checkpoint holds, and folders that hold such entries.
func (c *computer) marks(dir string) map[string]string {
	c.t.Helper()
	files, _, err := c.Files(c.t.Context(), wire.FilesRequest{Path: wire.Path(dir)})
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		switch {
		case f.Unkept != "":
			out[string(f.Path)] = f.Unkept
		case f.Beneath > 0:
			out[string(f.Path)] = fmt.Sprint(f.Beneath)
		}
		if f.Path == ".gitignore" {
			continue
		}
		// Asking for one path alone gives the same answer.
		if s, err := c.Stat(c.t.Context(), string(f.Path)); !fault.Is(err, fault.Denied) && (err != nil || s.Unkept != f.Unkept || s.Beneath != f.Beneath) {
			c.t.Errorf("stat %s: %+v, %v; listed as %+v", f.Path, s, err, f)
		}
	}
	return out
}

func sameMarks(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v\nwant %v", what, got, want)
	}
}

// TestWhatNoCheckpointHoldsIsSaid shows that the checkpoint, a listing, a write and a restore say
// what no checkpoint holds, and that what one holds is not marked.
func TestWhatNoCheckpointHoldsIsSaid(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits.LargestFile = 1000 })
	c.write("workspace/p/.gitignore", "*.log\n/deps/\n/none/\n/nested/\n")
	c.write("workspace/p/a", "a\n")
	c.write("workspace/p/b.log", "b\n")
	c.write("workspace/p/deps/x/y", "y\n")
	c.write("workspace/p/deep/er/c.log", "c\n")
	c.write("workspace/p/large", strings.Repeat("l", 1001))
	c.write("workspace/p/nested/.git/HEAD", "ref: refs/heads/main\n")
	c.write("workspace/p/nested/kept.log", "kept\n")
	if err := os.Mkdir(c.path("workspace/p/none"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(c.path("workspace/p/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	byP := "is ignored by workspace/p/.gitignore"
	// The marks are there before any checkpoint, too.
	want := map[string]string{"workspace/p/b.log": byP, "workspace/p/deps": byP, "workspace/p/deep": "1", "workspace/p/pipe": "is a fifo", "workspace/p/large": "has 1001 bytes; at most 1000 are captured"}
	sameMarks(t, "before", c.marks("workspace/p"), want)
	first := c.checkpoint("first")
	sameMarks(t, "after", c.marks("workspace/p"), want)
	sameMarks(t, "in an ignored folder", c.marks("workspace/p/deps"), map[string]string{"workspace/p/deps/x": "is in an ignored folder"})
	sameMarks(t, "a repository in an ignored folder", c.marks("workspace/p/nested"), map[string]string{})
	sameMarks(t, "above", c.marks("workspace"), map[string]string{"workspace/p": "5"})

	if first.Total != 2 || first.Outside != 3 || len(first.Left) != 2 || len(first.Ignored) != 3 || first.SkippedFiles != 2 || first.IgnoredCount != 3 {
		t.Errorf("the checkpoint says %+v", first)
	}
	list, err := c.List(t.Context(), wire.ListRequest{})
	if err != nil || list[0].SkippedFiles != 2 || list[0].IgnoredCount != 3 || fmt.Sprint(list[0].IgnoredPaths) != "[workspace/p/b.log workspace/p/deep/er/c.log workspace/p/deps]" || len(list[0].Skipped) != 2 {
		t.Errorf("the commit says %+v, %v", list[0], err)
	}
	under, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{Under: "workspace/p/deep"})
	if err != nil || under.Outside != 1 || len(under.Ignored) != 1 {
		t.Errorf("of a folder: %+v, %v", under, err)
	}
	dry := c.restore(wire.RestoreRequest{To: first.Commit.Commit, DryRun: true})
	if dry.Total != 2 || dry.Outside != 3 {
		t.Errorf("a restore says %+v", dry.LeftOut)
	}

	// A new commit says it, whatever its kind: what is new in the tree, and what is new only among
	// what can't be captured.
	if again := c.checkpoint("again"); again.Created {
		t.Errorf("nothing changed, and there is %+v", again)
	}
	if err := unix.Mkfifo(c.path("workspace/p/other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other := c.checkpoint("other"); !other.Created || other.SkippedFiles != 3 {
		t.Errorf("one more that can't be taken: %+v", other)
	}
	back := c.restore(wire.RestoreRequest{ID: "r1", To: first.Commit.Commit})
	if back.Applied.Commit.SkippedFiles != 3 || back.Applied.Commit.IgnoredCount != 3 {
		t.Errorf("the restore's commit says %+v", back.Applied.Commit)
	}
	if again := c.checkpoint("again"); again.Created {
		t.Errorf("after the restore nothing changed, and there is %+v", again)
	}
	if err := os.Remove(c.path("workspace/p/other")); err != nil {
		t.Fatal(err)
	}

	w, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/p/new.log"}, strings.NewReader("n"))
	if err != nil || w.Unkept != byP {
		t.Errorf("writing an ignored file says %q, %v", w.Unkept, err)
	}
	if w, err = c.Write(t.Context(), wire.WriteRequest{Path: "workspace/p/new"}, strings.NewReader("n")); err != nil || w.Unkept != "" {
		t.Errorf("writing a file says %q, %v", w.Unkept, err)
	}

	// What was captured stays captured, and is not marked.
	c.write("workspace/p/.gitignore", "a\n")
	c.checkpoint("second")
	sameMarks(t, "ignored afterwards", c.marks("workspace/p"), map[string]string{"workspace/p/pipe": "is a fifo", "workspace/p/large": want["workspace/p/large"]})
	c.reopen()
	sameMarks(t, "after a restart", c.marks("workspace/p"), map[string]string{"workspace/p/pipe": "is a fifo", "workspace/p/large": want["workspace/p/large"]})
}

// TestAHeapThatIsTooMuchIsMarked shows that when there are too many new paths, each of them is
// marked, and so are the folders above.
func TestAHeapThatIsTooMuchIsMarked(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits.Files = 10 })
	c.write("workspace/p/a", "a\n")
	c.checkpoint("first")
	for i := range 12 {
		c.write(fmt.Sprintf("workspace/p/build/f%02d", i), "x")
	}
	k := c.checkpoint("second")
	if k.Total != 12 || len(k.Left) != 1 {
		t.Errorf("left %+v", k.LeftOut)
	}
	if got := c.marks("workspace/p/build"); len(got) != 12 || got["workspace/p/build/f00"] != "is in workspace/p/build, which "+k.Left[0].Reason {
		t.Errorf("marked: %v", got)
	}
	sameMarks(t, "above", c.marks("workspace/p"), map[string]string{"workspace/p/build": "12"})
}

// TestAClosedFileIsMarked shows that a file that its permissions close is marked as being in no
// checkpoint.
func TestAClosedFileIsMarked(t *testing.T) {
	if !ordinary(t) {
		return
	}
	c := openClosed(t)
	c.write("workspace/a", "a\n")
	c.write("workspace/closed", "x\n")
	chmod(t, 0, c.path("workspace/closed"))
	c.checkpoint("first")
	sameMarks(t, "closed", c.marks("workspace"), map[string]string{"workspace/closed": "can't be read"})
}
