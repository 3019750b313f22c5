// Package words counts words.
package words

import "unicode"

// Words returns the words of a text, as they stand.
func Words(text string) []string {
	var out []string
	runes := []rune(text)
	inside := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]) || unicode.IsMark(runes[i]))
	}
	for i := 0; i < len(runes); {
		if !inside(i) {
			i++
			continue
		}
		start := i
		for inside(i) || (i < len(runes) && runes[i] == '\'' && inside(i-1) && inside(i+1)) {
			i++
		}
		out = append(out, string(runes[start:i]))
	}
	return out
}
