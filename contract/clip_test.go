package contract_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
)

// TestClip shows that a clipped text is a beginning of the text, fits, and is valid UTF-8 if the
// text is.
func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(3, 40).Draw(t, "n")
		got := contract.Clip(s, n)
		if len(got) > n || !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(s) > n && len(got) < n-utf8.UTFMax+1 {
			t.Fatalf("Clip(%q, %d) = %q", s, n, got)
		}
		short := contract.Shorten(s, n)
		rest, cut := strings.CutSuffix(short, "…")
		if len(short) > n || !utf8.ValidString(short) || len(s) <= n && short != s || len(s) > n && (!cut || !strings.HasPrefix(s, rest)) {
			t.Fatalf("Shorten(%q, %d) = %q", s, n, short)
		}
	})
	if got := contract.Clip("\xff\xff\xff", 2); len(got) > 2 {
		t.Errorf("%q", got)
	}
}
