package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Hue is a colour, or bold, as a terminal is told of it.
type Hue string

// The hues. A change has the one that git gives it.
const (
	Plainly Hue = ""
	Bold    Hue = "1"
	Red     Hue = "31" // what goes
	Green   Hue = "32" // what comes
	Yellow  Hue = "33" // what changes
	Cyan    Hue = "36" // where
)

// Text writes a text as it is, but what a terminal obeys.
func Text(w io.Writer, text string) {
	write(w, text, func(string) Hue { return Plainly })
}

// Diff writes a unified diff in its colours.
func Diff(w io.Writer, text string) {
	was, is := 0, 0 // lines that are to come of the part
	write(w, text, func(line string) Hue {
		switch {
		case was <= 0 && is <= 0 && strings.HasPrefix(line, "@@ "):
			was, is = part(line)
			return Cyan
		case was <= 0 && is <= 0:
			return Bold // of the file
		case strings.HasPrefix(line, "+"):
			is--
			return Green
		case strings.HasPrefix(line, "-"):
			was--
			return Red
		case strings.HasPrefix(line, "\\"): // that no line ends there
		default:
			was--
			is--
		}
		return Plainly
	})
}

// part is how many lines a part of a diff has, before and after: @@ -1,2 +3,4 @@.
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
		_, _ = io.WriteString(w, Plain(text)) // as Row: whoever reads w hears of it
		return
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line == "" {
			continue
		}
		_ = p.verbatim(line, hue(line)) // it is laid out in memory
	}
}
