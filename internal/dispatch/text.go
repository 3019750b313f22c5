package dispatch

import (
	"strings"
	"unicode/utf8"
)

// oneLine is a text on one line, cut at its end.
func oneLine(s string, max int) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "\uFFFD")
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}

// title is the first line of a goal.
func title(goal string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(goal), "\n")
	return oneLine(line, 120)
}

// tail is the end of a text, where commands say why they failed.
func tail(s string, max int) string {
	s = strings.TrimSpace(s)
	if len(s) <= max {
		return s
	}
	i := len(s) - max
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return "…" + s[i:]
}
