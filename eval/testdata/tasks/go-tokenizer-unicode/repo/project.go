// Package words counts words.
package words

// Words returns the words of a text, as they stand.
func Words(text string) []string {
	var out []string
	start := -1
	for i := 0; i < len(text); i++ {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if letter && start < 0 {
			start = i
		}
		if !letter && start >= 0 {
			out = append(out, text[start:i])
			start = -1
		}
	}
	return out
}
