package wire

// IsHex reports whether a text is digits of a lower-case hexadecimal number.
func IsHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return s != ""
}
