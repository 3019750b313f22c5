package engine_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// trashed returns what the trash holds, by the path at which it was.
func trashed(t *testing.T, c *computer) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(c.path(".git/choir/trash"))
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		dir := c.path(".git/choir/trash/" + en.Name())
		var meta wire.Trashed
		raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &meta); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "content")); err == nil {
			out[string(meta.Path)] += string(b)
		}
	}
	return out
}

// TestKilledWhileAFileIsReplaced kills a put and a removal at every point. What was displaced must
// be in the trash from that moment on, and what took effect, or is done again because the journal
// has it, must be reported afterwards, once.
func TestKilledWhileAFileIsReplaced(t *testing.T) {
	for _, test := range []struct{ do, path, point, live, trash, told string }{
		{"write", "a", "trash.intended", "second\n", "first\n", "write"},
		{"write", "a", "trash.exchanged", "second\n", "first\n", "write"},
		{"write", "a", "", "second\n", "first\n", "write"},
		{"write", "fresh", "trash.intended", "second\n", "", "write"},
		{"write", "a", "puts.synced", "second\n", "first\n", "write"}, // written by Close
		{"write", "fresh", "", "second\n", "", "write"},
		{"remove", "a", "trash.moved", "", "first\n", "remove"},
	} {
		t.Run(test.do+" "+test.path+" "+test.point, func(t *testing.T) {
			c := open(t)
			c.write("a", "first\n")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c.Engine = nil
			spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: test.point, Nth: 1, Do: test.do, To: test.path}
			if killed := runChild(t, spec); killed != (test.point != "") {
				t.Fatalf("killed: %v", killed)
			}
			c.reopen()
			live := ""
			if b, err := os.ReadFile(c.path(test.path)); err == nil {
				live = string(b)
			}
			if live != test.live {
				t.Errorf("%s holds %q; want %q", test.path, live, test.live)
			}
			if got := trashed(t, c)[test.path]; got != test.trash {
				t.Errorf("the trash holds %q; want %q", got, test.trash)
			}
			operations, err := c.UnloggedOperations(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if test.told == "" {
				if len(operations) > 0 {
					t.Errorf("told: %+v", operations)
				}
				return
			}
			if len(operations) != 1 || operations[0].Op != test.told || operations[0].Path != wire.Path(test.path) || operations[0].At == 0 || test.do == "write" && (operations[0].Size != 7 || operations[0].User != "somebody") {
				t.Fatalf("told: %+v", operations)
			}
			if err := c.OperationsLogged(t.Context(), []string{operations[0].ID}); err != nil {
				t.Fatal(err)
			}
			if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) > 0 {
				t.Errorf("told again: %+v, %v", operations, err)
			}
		})
	}
}

// TestWhatAnEarlierVersionLeftIsKept shows that files that were exchanged under names that a start
// once removed are kept, because they are somebody's.
func TestWhatAnEarlierVersionLeftIsKept(t *testing.T) {
	c := open(t)
	c.checkpoint("empty")
	left := []string{"tmp-write-0011", "tmp-late-p-1", "publish/p/aside/3m"}
	for _, name := range left {
		c.write(".git/choir/"+name, "the word in "+name)
	}
	c.write(".git/choir/incoming-0011", "half an upload")
	c.reopen()
	all := ""
	for _, content := range trashed(t, c) {
		all += content
	}
	for _, name := range left {
		if !strings.Contains(all, "the word in "+name) {
			t.Errorf("%s is lost", name)
		}
	}
	if _, err := os.Lstat(c.path(".git/choir/incoming-0011")); err == nil || strings.Contains(all, "half an upload") {
		t.Error("an upload that never ended is still there")
	}
}

// TestEveryWordOfALateWriterIsKept shows that a later version never replaces a kept earlier one.
func TestEveryWordOfALateWriterIsKept(t *testing.T) {
	c := open(t)
	c.write("workspace/b", "b\n")
	k := c.begin("t1")
	k.write("workspace/b", "task\n")
	f, err := os.OpenFile(c.path("workspace/b"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k.publish()
	c.checkpoint("still open")
	for _, word := range []string{"one\n", "two\n", "six\n"} {
		if _, err := f.WriteAt([]byte(word), 0); err != nil {
			t.Fatal(err)
		}
		c.checkpoint("after " + word)
	}
	out := stockGit(t, c.opts.Root, "rev-list", "--all", "--objects", "--no-object-names", "--filter=object:type=blob")
	kept := ""
	for id := range strings.FieldsSeq(out) {
		if stockGit(t, c.opts.Root, "cat-file", "-t", id) == "blob\n" {
			kept += stockGit(t, c.opts.Root, "cat-file", "blob", id)
		}
	}
	for _, word := range []string{"one\n", "two\n", "six\n"} {
		if !strings.Contains(kept, word) {
			t.Errorf("%q is in no commit", word)
		}
	}
}

// TestAPlanOfTheSameNameLosesNothing shows that a file that a plan displaced, and that somebody
// still has open, outlives another plan of the same name.
func TestAPlanOfTheSameNameLosesNothing(t *testing.T) {
	c := open(t)
	c.write("workspace/b", "b\n")
	k := c.begin("t1")
	k.write("workspace/b", "task\n")
	f, err := os.OpenFile(c.path("workspace/b"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k.publish()
	c.restore(wire.RestoreRequest{ID: "p-t1", To: k.base})
	if _, err := f.WriteAt([]byte("user\n"), 0); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("afterwards")
	if !strings.Contains(everything(t, c), "user\n") {
		t.Error("what was written to the displaced file is lost")
	}
}
