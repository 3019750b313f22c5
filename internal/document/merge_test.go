package document_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/document"
)

func TestMerge(t *testing.T) {
	for _, c := range []struct {
		name, base, ours, theirs, want string
		conflicts                      int
	}{
		{"apart", "a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n", "A\nb\nc\nD\n", 0},
		{"same change", "a\nb\n", "a\nB\n", "a\nB\n", "a\nB\n", 0},
		{"same place", "a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", "a\nY\nc\n", 1},
		{"neighbours touch", "a\nb\nc\n", "A\nb\nc\n", "a\nB\nc\n", "a\nB\nc\n", 1},
		{"both append", "a\n", "a\nx\n", "a\ny\n", "a\ny\n", 1},
		{"both append the same", "a\n", "a\nx\n", "a\nx\n", "a\nx\n", 0},
		{"delete and edit elsewhere", "a\nb\nc\nd\ne\n", "a\nc\nd\ne\n", "a\nb\nc\nd\nE\n", "a\nc\nd\nE\n", 0},
		{"delete and edit there", "a\nb\nc\n", "a\nc\n", "a\nB\nc\n", "a\nB\nc\n", 1},
		{"no newline at the end", "a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC", 0},
		{"from nothing", "", "x\n", "", "x\n", 0},
		{"two places", "1\n2\n3\n4\n5\n6\n7\n", "1\nx\n3\n4\n5\ny\n7\n", "1\n2\n3\nz\n5\n6\n7\n", "1\nx\n3\nz\n5\ny\n7\n", 0},
	} {
		got, conflicts := document.Merge(c.base, c.ours, c.theirs)
		if got != c.want || len(conflicts) != c.conflicts {
			t.Errorf("%s: %q with %d conflicts %+v; want %q with %d", c.name, got, len(conflicts), conflicts, c.want, c.conflicts)
		}
	}
}

func lines(t *rapid.T, name string) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n"}), 0, 12).Draw(t, name)
}

// TestMergeLaws shows that a text that only one side changed becomes that side's, that equal
// changes merge, and that two changes with an unchanged line between them are both kept.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, ours := strings.Join(lines(t, "base"), ""), strings.Join(lines(t, "ours"), "")
		if got, c := document.Merge(base, ours, base); got != ours || c != nil {
			t.Fatalf("only ours changed: %q %v", got, c)
		}
		if got, c := document.Merge(base, base, ours); got != ours || c != nil {
			t.Fatalf("only theirs changed: %q %v", got, c)
		}
		if got, c := document.Merge(base, ours, ours); got != ours || c != nil {
			t.Fatalf("both changed alike: %q %v", got, c)
		}
		// The texts are put around a line that neither side changes.
		head, tail := strings.Join(lines(t, "head"), ""), strings.Join(lines(t, "tail"), "")
		const mid = "--- 1\n--- 2\n--- 3\n"
		got, c := document.Merge(base+mid+head, ours+mid+head, base+mid+tail)
		if want := ours + mid + tail; got != want || c != nil {
			t.Fatalf("apart: %q %v, want %q", got, c, want)
		}
	})
}

func TestMergeOfTextsWithNothingInCommonIsBounded(t *testing.T) {
	var a, b strings.Builder
	for i := range 20000 {
		a.WriteString(strings.Repeat("a", i%97) + "\n")
		b.WriteString(strings.Repeat("b", i%89) + "x\n")
	}
	got, c := document.Merge(a.String(), b.String(), "x\n"+a.String())
	if len(c) != 1 || !strings.HasPrefix(got, "x\n") {
		t.Errorf("%d conflicts, %d bytes", len(c), len(got))
	}
}
