package engine_test

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestFollowing shows that a file that the host holds replaces one that the host holds and leaves
// nothing behind, and that content that nobody holds stays where it is, or goes to the trash when a
// program still writes to it.
func TestFollowing(t *testing.T) {
	c := open(t)
	follow := func(want, text string) (wire.Written, error) {
		return c.Write(t.Context(), wire.WriteRequest{Path: "artifacts/a.md", If: want, Held: true}, strings.NewReader(text))
	}
	trash := func() int {
		t.Helper()
		r, err := c.Trash(t.Context(), wire.TrashRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Items)
	}
	one, err := follow("none", "one\n")
	if err != nil || one.Op != "" || c.read("artifacts/a.md") != "one\n" {
		t.Fatalf("%+v, %v", one, err)
	}
	two, err := follow(one.ID, "two\n")
	if err != nil || c.read("artifacts/a.md") != "two\n" || trash() != 0 {
		t.Fatalf("%+v, %v; %d entries in the trash", two, err, trash())
	}
	for _, want := range []string{one.ID, "none"} {
		if _, err := follow(want, "three\n"); !fault.Is(err, fault.Conflict) || c.read("artifacts/a.md") != "two\n" || trash() != 0 {
			t.Errorf("over what was not expected: %v; it holds %q", err, c.read("artifacts/a.md"))
		}
	}
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) != 0 {
		t.Errorf("there is something to tell: %+v, %v", operations, err)
	}
	// A program that has the file open may write to it until it closes it.
	f, err := os.OpenFile(c.path("artifacts/a.md"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := follow(two.ID, "three\n"); err != nil || c.read("artifacts/a.md") != "three\n" || trash() != 1 {
		t.Errorf("%v; it holds %q, and %d entries are in the trash", err, c.read("artifacts/a.md"), trash())
	}
	if left, err := os.ReadDir(c.path(".git/choir")); err != nil {
		t.Error(err)
	} else {
		for _, en := range left {
			if strings.HasPrefix(en.Name(), "tmp-") || strings.HasPrefix(en.Name(), "incoming-") {
				t.Errorf("%s is left", en.Name())
			}
		}
	}
	if k := c.checkpoint("all of it"); k.Commit.Commit == "" || c.inHistory("artifacts/a.md")[0] != "three\n" {
		t.Errorf("%+v", k)
	}
	c.fsck()
}
