package webpage

import (
	"fmt"
	"strings"
	"unicode"
)

// maxMarks is how many combining marks may follow each other. Living scripts stack fewer; more of them cover the lines around.
const maxMarks = 4

// unseen are characters that count as letters, signs or marks and yet show nothing of their own: bytes are hidden in them.
var unseen = []*unicode.RangeTable{unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector}

// blank are signs that look like a space.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0xFFFC, Hi: 0xFFFC, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x13441, Hi: 0x13442, Stride: 1}, {Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, {Lo: 0x1D159, Hi: 0x1D159, Stride: 1}},
}

// spaces reports whether a character is seen as a gap, and is another one than the space.
func spaces(r rune) bool { return r != ' ' && unicode.Is(unicode.Zs, r) || unicode.Is(blank, r) }

// hides reports whether a character can't be seen as what it is: it is none that is printed (controls, those of format and of
// direction, private and unassigned ones), is ignored where it is shown, or looks like a space.
func hides(r rune) bool { return !unicode.IsGraphic(r) || unicode.In(r, unseen...) || spaces(r) }

// marks counts the combining marks that follow each other.
type marks int

// many reports whether a character is a mark too many.
func (m *marks) many(r rune) bool {
	if !unicode.Is(unicode.M, r) {
		*m = 0
		return false
	}
	*m++
	return *m > maxMarks
}

// Plain makes text of what may be anything: valid UTF-8, with no control characters but line ends and tabs,
// and none of those that reorder or hide what stands around them. What could be a character that is not known here is
// shown as one.
func Plain(s string) string {
	var run marks
	return strings.Map(func(r rune) rune {
		tooMany := run.many(r)
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.In(r, unicode.Zl, unicode.Zp):
			return '\n'
		case spaces(r):
			return ' '
		case !hides(r) && !tooMany:
			return r
		case unicode.IsGraphic(r), unicode.In(r, unicode.Cc, unicode.Cf), unicode.In(r, unseen...):
			return -1
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Seen is a text in which nothing hides: what can't be seen as what it is, but line ends, is spelled out.
func Seen(s string) string {
	var b strings.Builder
	var run marks
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if tooMany := run.many(r); r != '\n' && (tooMany || hides(r)) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
