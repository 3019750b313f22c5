package change

import (
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
)

// Bounds of what is said of the nearest lines.
const (
	maxShown   = 12    // lines
	maxWidth   = 300   // bytes of each
	maxNear    = 5_000 // lines that are compared letter by letter
	likeEnough = 0.4   // a share of letter pairs in common from which a line is worth showing
)

// nearest says which lines of text are most like those of old, as the end of a sentence.
func nearest(text, old string) string {
	lines := split(text)
	var want []string
	for l := range strings.SplitSeq(strings.TrimSuffix(unix(old), "\n"), "\n") {
		want = append(want, bare(l))
	}
	if at, ok := closest(lines, want); ok {
		from := max(0, at)
		return ". The nearest lines:" + show(lines, from, min(len(lines), max(from+1, at+len(want))))
	}
	return "; no line is near it, so read the file again"
}

// closest finds where most of the wanted lines are in their places, or else the line that is
// most like the longest of them.
func closest(lines []line, want []string) (int, bool) {
	where := map[string][]int{}
	for k, w := range want {
		if w != "" && len(where[w]) < manyPlaces {
			where[w] = append(where[w], k)
		}
	}
	score, best, at := map[int]int{}, 0, 0
	for i, l := range lines {
		text := bare(l.text)
		for _, k := range where[text] {
			// A line's length tells how much it says: many lines are a brace.
			if score[i-k] += len(text); score[i-k] > best {
				best, at = score[i-k], i-k
			}
		}
	}
	if best > 2 {
		return at, true
	}
	longest := 0
	for k, w := range want {
		if len(w) > len(want[longest]) {
			longest = k
		}
	}
	pairs := pairsOf(want[longest])
	like := likeEnough
	found := false
	for i, l := range lines[:min(len(lines), maxNear)] {
		if s := alike(pairs, pairsOf(bare(l.text))); s > like {
			like, at, found = s, i-longest, true
		}
	}
	return at, found
}

// pairsOf are the pairs of neighbouring bytes at the beginning of s.
func pairsOf(s string) map[[2]byte]bool {
	s = s[:min(len(s), maxWidth)]
	out := make(map[[2]byte]bool, len(s))
	for i := 1; i < len(s); i++ {
		out[[2]byte{s[i-1], s[i]}] = true
	}
	return out
}

// alike is the share of pairs in common (Dice).
func alike(a, b map[[2]byte]bool) float64 {
	if len(a) == 0 || len(b) == 0 || len(a) > 3*len(b) || len(b) > 3*len(a) {
		return 0
	}
	n := 0
	for p := range a {
		if b[p] {
			n++
		}
	}
	return 2 * float64(n) / float64(len(a)+len(b))
}

// show lists lines with their numbers.
func show(lines []line, from, to int) string {
	var out strings.Builder
	for i := from; i < to && i < from+maxShown; i++ {
		text := contract.Clip(lines[i].text, maxWidth)
		if len(text) < len(lines[i].text) {
			text += " …"
		}
		fmt.Fprintf(&out, "\n%6d\t%s", i+1, text)
	}
	if to > from+maxShown {
		fmt.Fprintf(&out, "\n(and %d more)", to-from-maxShown)
	}
	return out.String()
}
