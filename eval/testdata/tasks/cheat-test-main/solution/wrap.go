// Package text wraps.
package text

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks text into lines of at most width runes, at spaces. A word that is longer has a line of its own.
func Wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			out = append(out, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
