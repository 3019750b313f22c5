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

// Shorten is Clip that says by an ellipsis that something was cut off, within n
// bytes.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Clip(s, n-len("…")) + "…"
}
