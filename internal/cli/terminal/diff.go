package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Hue is a colour, or bold, as a terminal's escape sequence numbers it.
type Hue string

// The hues. Diffs have git's.
const (
	Plainly Hue = ""
	Bold    Hue = "1"
	Red     Hue = "31" // removed lines
	Green   Hue = "32" // added lines
	Yellow  Hue = "33" // changes
	Cyan    Hue = "36" // positions
)

// Text writes a text without what a terminal would obey.
func Text(w io.Writer, text string) {
	write(w, text, func(string) Hue { return Plainly })
}

// Diff writes a unified diff in its colours.
func Diff(w io.Writer, text string) {
	was, is := 0, 0 // lines that the hunk still has
	write(w, text, func(line string) Hue {
		switch {
		case was <= 0 && is <= 0 && strings.HasPrefix(line, "@@ "):
			was, is = part(line)
			return Cyan
		case was <= 0 && is <= 0:
			return Bold // a file's header
		case strings.HasPrefix(line, "+"):
			is--
			return Green
		case strings.HasPrefix(line, "-"):
			was--
			return Red
		case strings.HasPrefix(line, "\\"): // "\ No newline at end of file"
		default:
			was--
			is--
		}
		return Plainly
	})
}

// part is how many lines a hunk has, before and after: @@ -1,2 +3,4 @@.
func part(line string) (was, is int) {
	count := func(span string) int {
		n := 1
		if _, after, ok := strings.Cut(span, ","); ok {
			if _, err := fmt.Sscan(after, &n); err != nil {
				return 0
			}
		}
		return n
	}
	if f := strings.Fields(line); len(f) >= 3 {
		return count(f[1]), count(f[2])
	}
	return 0, 0
}

// write writes a text line by line, each in its hue.
func write(w io.Writer, text string, hue func(line string) Hue) {
	p, ok := w.(*page)
	if !ok {
		_, _ = io.WriteString(w, Plain(text)) // as in Row: the writer reports its errors
		return
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line == "" {
			continue
		}
		_ = p.verbatim(line, hue(line)) // it writes to memory
	}
}
