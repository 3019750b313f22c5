package keeper_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper"
)

// TestContentIsFoundByItsHash: in a live file, in the trash and in the history;
// within its bounds, and saying when it did not look everywhere.
func TestContentIsFoundByItsHash(t *testing.T) {
	c := open(t)
	sum := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	c.write("live", "live\n")
	c.write("old", "old\n")
	c.checkpoint("both")
	c.write("old", "new\n")
	c.checkpoint("the newer")
	c.write("workspace/ignored/.gitignore", "*\n")
	c.write("workspace/ignored/gone", "gone\n")
	removed, err := c.Remove(t.Context(), keeper.RemoveRequest{Path: "workspace/ignored/gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("live", c.path("link")); err != nil {
		t.Fatal(err)
	}
	wanted := []string{sum("live\n"), sum("old\n"), sum("gone\n"), sum("nowhere\n")}
	r, err := c.Find(t.Context(), keeper.FindRequest{SHA256: wanted})
	if err != nil || len(r.Found) != 3 || r.Partial {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []keeper.Found{{SHA256: wanted[0], Path: "live"}, {SHA256: wanted[2], Trash: removed.ID}, {SHA256: wanted[1], Object: r.Found[2].Object}} {
		if r.Found[i] != want || i == 2 && want.Object == "" {
			t.Errorf("found %+v; want %+v", r.Found[i], want)
		}
	}
	if r, err := c.Find(t.Context(), keeper.FindRequest{SHA256: wanted, Bytes: 6}); err != nil || !r.Partial || len(r.Found) > 1 {
		t.Errorf("within 6 bytes: %+v, %v", r, err)
	}
	for _, bad := range [][]string{{"x"}, {sum("a")[:40]}, make([]string, 201)} {
		if _, err := c.Find(t.Context(), keeper.FindRequest{SHA256: bad}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d sums: %v", len(bad), err)
		}
	}
}
