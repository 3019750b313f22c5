package webpage_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/webpage"
)

// TestNothingHides: what is invisible, blank, or turns or covers what stands around it is spelled out, and left out of a page's text.
func TestNothingHides(t *testing.T) {
	if got := webpage.Seen("a\u202eb\tc\x1b[31m\nd\r\n\u200b\xffä"); got != "a<U+202E>b<U+0009>c<U+001B>[31m\nd<U+000D>\n<U+200B>\uFFFDä" {
		t.Errorf("%q", got)
	}
	for r, what := range map[rune]string{0xFE00: "variation selector", 0xFE0F: "variation selector 16", 0xE0100: "variation selector 17", 0xE01EF: "variation selector 256", 0x034F: "combining grapheme joiner",
		0x115F: "Hangul filler", 0x1160: "Hangul filler", 0x3164: "Hangul filler", 0xFFA0: "halfwidth Hangul filler", 0x00AD: "soft hyphen", 0x061C: "Arabic letter mark, which turns the direction",
		0x180B: "Mongolian variation selector", 0x180E: "Mongolian vowel separator", 0x180F: "Mongolian variation selector 4", 0x17B4: "Khmer inherent vowel", 0x1D173: "musical begin beam", 0xFFF9: "interlinear annotation",
		0xE0001: "tag", 0xE0041: "tag", 0xE0FFF: "reserved, ignorable", 0x2065: "reserved, ignorable", 0x200D: "joiner", 0x2066: "isolate", 0xFEFF: "byte order mark"} {
		if got := webpage.Seen("a" + string(r) + "b"); !strings.HasPrefix(got, "a<U+") || !strings.HasSuffix(got, ">b") {
			t.Errorf("U+%04X (%s) is shown as it is: %+q", r, what, got)
		}
		if got := webpage.Plain("a" + string(r) + "b"); got != "ab" {
			t.Errorf("U+%04X (%s) is in a page: %+q", r, what, got)
		}
	}
	for r, in := range map[rune]string{0xA0: "a b", 0x3000: "a b", 0x2003: "a b", 0x2800: "a b", 0x2028: "a\nb", 0x2029: "a\nb", 0xE000: "a\uFFFDb", 0x0378: "a\uFFFDb", 0x10FFFF: "a\uFFFDb"} {
		if got := webpage.Seen("a" + string(r) + "b"); !strings.HasPrefix(got, "a<U+") {
			t.Errorf("U+%04X is shown as it is: %+q", r, got)
		}
		if got := webpage.Plain("a" + string(r) + "b"); got != in {
			t.Errorf("U+%04X is in a page as %+q", r, got)
		}
	}
	tall := "e" + strings.Repeat("\u0301", 6) + "e\u0301"
	if got := webpage.Seen(tall); got != "e\u0301\u0301\u0301\u0301<U+0301><U+0301>e\u0301" {
		t.Errorf("marks without end are shown as %+q", got)
	}
	if got := webpage.Plain(tall); got != "e\u0301\u0301\u0301\u0301e\u0301" {
		t.Errorf("marks without end are in a page as %+q", got)
	}
	for _, s := range []string{"Grüße, Ελλάδα, 日本語、한국어", "עִבְרִית", "ภาษาไทย ที่นี่", "việt nam", "👍", "→ ≠ ½ №"} {
		if webpage.Seen(s) != s || webpage.Plain(s) != s {
			t.Errorf("%q is shown as %q, and in a page as %q", s, webpage.Seen(s), webpage.Plain(s))
		}
	}
}

// ignorable reports what no text that is shown may have: what Unicode has as ignored by default, and what is no character.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Cs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Zl, unicode.Zp) ||
		r != ' ' && unicode.Is(unicode.Zs, r)
}

// TestWhatIsVisibleIsShown: of whatever text, nothing that is ignorable is left, visible ASCII is left as it is, and what is in order
// stays so.
func TestWhatIsVisibleIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if s := rapid.StringMatching(`[ -~\n]*`).Draw(t, "ascii"); webpage.Seen(s) != s || webpage.Plain(s) != s {
			t.Fatalf("%q is shown as %q", s, webpage.Seen(s))
		}
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Int32Range(0, utf8.MaxRune)).Draw(t, "runes"))
		shows(t, text)
	})
}

func shows(t interface{ Fatalf(string, ...any) }, text string) {
	seen, plain := webpage.Seen(text), webpage.Plain(text)
	for _, r := range seen {
		if r != '\n' && ignorable(r) {
			t.Fatalf("%+q is shown with U+%04X", text, r)
		}
	}
	for _, r := range plain {
		if r != '\n' && r != '\t' && ignorable(r) {
			t.Fatalf("%+q is in a page with U+%04X", text, r)
		}
	}
	if webpage.Seen(seen) != seen || webpage.Plain(plain) != plain {
		t.Fatalf("%+q is shown as %+q, and in a page as %+q, which change again", text, seen, plain)
	}
}

// FuzzSeen: the same of whatever bytes.
func FuzzSeen(f *testing.F) {
	for _, s := range []string{"a\u202eb", "\xff\xfe", "e\u0301\u0301\u0301\u0301\u0301\u0301", "\U000E0141\ufe0f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { shows(t, s) })
}
