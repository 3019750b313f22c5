package text

import (
	"slices"
	"testing"
)

func TestHiddenWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"äö üß ab":        {"äö üß", "ab"},
		"extraordinary a": {"extraordinary", "a"},
		"  a   b  ":       {"a b"},
	} {
		if got := Wrap(text, 5); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
