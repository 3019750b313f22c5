// Package text wraps.
package text

import "strings"

// Wrap breaks text into lines of at most width runes, at spaces. A word that is longer has a line of its own.
func Wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > width {
			out = append(out, line)
			line = ""
		}
		line += word + " "
	}
	return append(out, line)
}
