package contract

import "unicode/utf8"

// Clip cuts a text to at most n bytes, between characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten is Clip that marks a cut by an ellipsis, within n bytes.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Clip(s, n-len("…")) + "…"
}

// maxLine bounds a text of one line, in bytes.
const maxLine = 4096

// Line bounds a text for an event and keeps it on one line.
func Line(s string) string {
	b := []rune(Clip(s, maxLine))
	for i, r := range b {
		if r < ' ' || r == 0x7f {
			b[i] = ' '
		}
	}
	if len(b) == 0 {
		return "no reason was given"
	}
	return string(b)
}
