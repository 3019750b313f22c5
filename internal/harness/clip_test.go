package harness_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/harness"
)

func TestClipIsBoundedAndValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "s"))
		if rapid.Bool().Draw(t, "text") {
			s = rapid.StringN(0, 500, 2000).Draw(t, "text")
		}
		max := rapid.IntRange(0, 1500).Draw(t, "max")
		got := harness.Clip(s, max)
		if len(got) > max || !utf8.ValidString(got) {
			t.Fatalf("%d bytes for a limit of %d", len(got), max)
		}
		if utf8.ValidString(s) && len(s) <= max && got != s {
			t.Fatalf("changed what fits")
		}
	})
}

func TestComposeKeepsTheMostImportant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(600, 5000).Draw(t, "limit")
		var secs []harness.Section
		for i := range rapid.IntRange(0, 8).Draw(t, "n") {
			secs = append(secs, harness.Section{Title: string(rune('A' + i)), Body: strings.Repeat("x", rapid.IntRange(0, 4000).Draw(t, "len"))})
		}
		got := harness.Compose(limit, secs...)
		if len(got) > limit {
			t.Fatalf("%d bytes for a limit of %d", len(got), limit)
		}
		if got != harness.Compose(limit, secs...) {
			t.Fatal("not deterministic")
		}
		if len(secs) > 0 && len(secs[0].Body) > 0 && !strings.HasPrefix(got, "## A") {
			t.Fatalf("the first section is missing: %.60q", got)
		}
	})
}
