package change

import (
	"fmt"
	"strings"
)

// line is one line of a text: where it begins, what it says and how it ends.
type line struct {
	at   int
	text string
	end  string // "\n", "\r\n", or "" of a last line without one
}

func split(s string) []line {
	var out []line
	for at := 0; at < len(s); {
		l := line{at: at, text: s[at:]}
		if i := strings.IndexByte(l.text, '\n'); i >= 0 {
			l.text, l.end = l.text[:i], "\n"
			if strings.HasSuffix(l.text, "\r") {
				l.text, l.end = l.text[:i-1], "\r\n"
			}
		}
		at += len(l.text) + len(l.end)
		out = append(out, l)
	}
	return out
}

// manyPlaces bounds the places that are looked for: who reads of them needs no more.
const manyPlaces = 20

const blanks = " \t\r"

func bare(s string) string { return strings.Trim(s, blanks) }

func allBlank(lines []string) bool {
	for _, l := range lines {
		if bare(l) != "" {
			return false
		}
	}
	return true
}

// find returns the indices at which want stands in lines, each line seen through as. It finds
// places that overlap, too, and at most one more than manyPlaces. It takes time in proportion
// to the lines (Knuth, Morris and Pratt), whatever the text is.
func find(lines []line, want []string, as func(string) string) []int {
	if len(want) == 0 || len(want) > len(lines) {
		return nil
	}
	seen := make([]string, len(want))
	for i, w := range want {
		seen[i] = as(w)
	}
	back := make([]int, len(want)+1)
	back[0] = -1
	for i, k := 0, -1; i < len(seen); {
		for k >= 0 && seen[i] != seen[k] {
			k = back[k]
		}
		i, k = i+1, k+1
		back[i] = k
	}
	var at []int
	k := 0
	for i, l := range lines {
		text := as(l.text)
		for k >= 0 && (k == len(seen) || text != seen[k]) {
			k = back[k]
		}
		if k++; k == len(seen) {
			if at = append(at, i-k+1); len(at) > manyPlaces {
				return at
			}
		}
	}
	return at
}

func same(s string) string { return s }

// times says how often something was found, and at which lines.
func times(lineNumbers []int) string {
	n, more := len(lineNumbers), ""
	if n > manyPlaces {
		lineNumbers, more = lineNumbers[:manyPlaces], " and more"
	}
	words := make([]string, len(lineNumbers))
	for i, l := range lineNumbers {
		words[i] = fmt.Sprint(l)
	}
	count := fmt.Sprint(n)
	if more != "" {
		count = fmt.Sprintf("more than %d", manyPlaces)
	}
	return fmt.Sprintf("%s times, at lines %s%s", count, strings.Join(words, ", "), more)
}

func plusOne(at []int) []int {
	out := make([]int, len(at))
	for i, n := range at {
		out[i] = n + 1
	}
	return out
}

// unix is s with plain line ends.
func unix(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// ended is s with the line ends of a file.
func ended(s, end string) string {
	if end != "\r\n" {
		return s
	}
	return strings.ReplaceAll(unix(s), "\n", "\r\n")
}

// endOf is the line end that new lines get beside the lines given, of a text.
func endOf(beside, all []line) string {
	for _, list := range [][]line{beside, all} {
		if len(list) > 0 && list[0].end != "" {
			return list[0].end
		}
	}
	return "\n"
}

// allCRLF says whether every line of s ends in CRLF.
func allCRLF(s string) bool {
	n := strings.Count(s, "\r\n")
	return n > 0 && n == strings.Count(s, "\n")
}
