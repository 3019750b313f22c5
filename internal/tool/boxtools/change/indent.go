package change

import "strings"

// indentOf is the white space before the first word of a line.
func indentOf(s string) string { return s[:len(s)-len(strings.TrimLeft(s, " \t"))] }

// shift finds how the indentation of lines as somebody wrote them becomes that of the file's
// same lines, so that new lines can be indented in the same way. written and file are the same
// lines but for white space. It returns nil if no one rule explains them all, for then the new
// lines' indentation would be a guess.
func shift(written, file, fresh []string) func(string) (string, bool) {
	var from, to []string
	for i, w := range written {
		if bare(w) != "" {
			from, to = append(from, indentOf(w)), append(to, indentOf(file[i]))
		}
	}
	for _, convert := range conversions(from, to, fresh) {
		add, strip, ok := prefix(convert, from, to)
		if !ok {
			continue
		}
		return func(s string) (string, bool) {
			if bare(s) == "" {
				return s, true
			}
			indent := indentOf(s)
			rest := s[len(indent):]
			got := convert(indent)
			if !strings.HasPrefix(got, strip) {
				return "", false
			}
			return add + got[len(strip):] + rest, true
		}
	}
	return nil
}

// prefix finds what is put before, or taken from before, every converted indentation to give
// the file's.
func prefix(convert func(string) string, from, to []string) (add, strip string, ok bool) {
	for i, f := range from {
		got, want := convert(f), to[i]
		var a, s string
		switch {
		case strings.HasSuffix(want, got):
			a = want[:len(want)-len(got)]
		case strings.HasSuffix(got, want):
			s = got[:len(got)-len(want)]
		default:
			return "", "", false
		}
		if i > 0 && (a != add || s != strip) {
			return "", "", false
		}
		add, strip = a, s
	}
	return add, strip, true
}

// conversions are the ways in which one kind of indentation may stand for another, the likely
// ones first.
func conversions(from, to, fresh []string) []func(string) string {
	all := append([]string(nil), from...)
	for _, l := range fresh {
		if bare(l) != "" {
			all = append(all, indentOf(l))
		}
	}
	out := []func(string) string{}
	switch {
	case only(all, " ") && only(to, "\t") && has(to, "\t"):
		out = append(out, tabs(unit(all)))
		for w := 1; w <= 8; w++ {
			out = append(out, tabs(w))
		}
	case only(all, "\t") && only(to, " ") && has(all, "\t"):
		for _, w := range []int{4, 2, 8, 3, 1, 5, 6, 7} {
			out = append(out, func(s string) string { return strings.ReplaceAll(s, "\t", strings.Repeat(" ", w)) })
		}
	}
	return append(out, same)
}

func tabs(width int) func(string) string {
	return func(s string) string {
		if width < 1 || len(s)%width != 0 {
			return s
		}
		return strings.Repeat("\t", len(s)/width)
	}
}

// unit is the widest step of which all the indentations are multiples.
func unit(indents []string) int {
	n := 0
	for _, s := range indents {
		for a, b := n, len(s); ; {
			if b == 0 {
				n = a
				break
			}
			a, b = b, a%b
		}
	}
	return n
}

func only(indents []string, c string) bool {
	for _, s := range indents {
		if strings.Trim(s, c) != "" {
			return false
		}
	}
	return true
}

func has(indents []string, c string) bool {
	for _, s := range indents {
		if strings.Contains(s, c) {
			return true
		}
	}
	return false
}
