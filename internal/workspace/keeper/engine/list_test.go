package engine_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAttack43_NoNameHidesAnother shows that a folder is listed completely, page by page, by the
// names that people are shown and ask for, however many names there are and whatever bytes they
// have.
func TestAttack43_NoNameHidesAnother(t *testing.T) {
	c := open(t)
	dir := c.path("workspace/many")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 10_060 {
		want = append(want, fmt.Sprintf("a%05d", i))
	}
	for i := range 40 { // these names are shown alike, in sequence and between others
		want = append(want, fmt.Sprintf("\xff%02d", i), fmt.Sprintf("\xfe%02d", i%20), fmt.Sprintf("é%d", i), fmt.Sprintf("~%d", i))
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{0, 997} {
		var got []string
		after, pages := "", 0
		for more := 1; more > 0; pages++ {
			files, left, err := c.Files(t.Context(), wire.FilesRequest{Path: "workspace/many", After: after, Limit: limit})
			if err != nil || len(files) == 0 || pages > 20 {
				t.Fatalf("page %d has %d: %v", pages, len(files), err)
			}
			for _, f := range files {
				got = append(got, path.Base(string(f.Path)))
			}
			after, more = path.Base(files[len(files)-1].Path.Shown()), left
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %d of %d are listed, on %d pages", limit, len(got), len(want), pages)
		}
	}
}

// TestAQuickStatReadsNothing shows that a request about a file that was not captured yet, to show it or
// to hand it out, costs less than reading it.
func TestAQuickStatReadsNothing(t *testing.T) {
	c := open(t)
	const size = 64 << 20
	c.checkpoint("what was left out is known")
	c.write("workspace/big", "")
	if err := os.Truncate(c.path("workspace/big"), size); err != nil {
		t.Fatal(err)
	}
	read := func() (n int64) {
		raw, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(raw), "rchar: %d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	info, err := c.QuickStat(t.Context(), "workspace/big")
	if err != nil || info.Size != size || info.Kind != "file" || info.ID != "" {
		t.Errorf("a quick stat says %+v, %v", info, err)
	}
	if n := read() - before; n > size/4 {
		t.Errorf("a quick stat read %d bytes", n)
	}
	before = read()
	if stat, err := c.Stat(t.Context(), "workspace/big"); err != nil || len(stat.ID) != 40 || read()-before < size {
		t.Errorf("the control, which reads it: %+v, %v, %d bytes", stat, err, read()-before)
	}
}
