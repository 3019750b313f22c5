package document

import (
	"fmt"
	"strings"
)

// unifiedContext is how many lines around a change Unified shows.
const unifiedContext = 3

// Unified writes what differs from a to b, of a file with the given name, as a
// unified diff of at most limit bytes of whole lines; cut says that there is more.
// Equal texts give "".
func Unified(name, a, b string, limit int) (text string, cut bool) {
	lines := newInterner()
	from, to := lines.split(a), lines.split(b)
	hunks := diff(from, to)
	if len(hunks) == 0 {
		return "", false
	}
	var out strings.Builder
	write := func(s string) {
		if cut = cut || out.Len()+len(s) > limit; !cut {
			out.WriteString(s)
		}
	}
	line := func(mark string, id int) {
		s := mark + lines.text[id]
		if !strings.HasSuffix(s, "\n") {
			s += "\n\\ No newline at end of file\n"
		}
		write(s)
	}
	write("--- a/" + name + "\n")
	write("+++ b/" + name + "\n")
	for len(hunks) > 0 && !cut {
		n := 1
		for n < len(hunks) && hunks[n].from-hunks[n-1].to <= 2*unifiedContext {
			n++
		}
		group := hunks[:n]
		hunks = hunks[n:]
		first, last := group[0], group[n-1]
		lo, hi := max(first.from-unifiedContext, 0), min(last.to+unifiedContext, len(from))
		start := first.start - (first.from - lo)
		end := last.end + (hi - last.to)
		write(fmt.Sprintf("@@ -%s +%s @@\n", span(lo, hi), span(start, end)))
		at := lo
		for _, h := range group {
			for ; at < h.from; at++ {
				line(" ", from[at])
			}
			for _, id := range from[h.from:h.to] {
				line("-", id)
			}
			for _, id := range to[h.start:h.end] {
				line("+", id)
			}
			at = h.to
		}
		for ; at < hi; at++ {
			line(" ", from[at])
		}
	}
	return out.String(), cut
}

// span names lines lo to hi (from 0, hi left out) as a hunk's header does.
func span(lo, hi int) string {
	if lo == hi {
		return fmt.Sprintf("%d,0", lo)
	}
	return fmt.Sprintf("%d,%d", lo+1, hi-lo)
}
