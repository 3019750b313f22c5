package tool

import (
	"strings"
	"testing"
)

// TestNamesOfTools: a name is a letter and then letters, digits and _, 63 in all.
func TestNamesOfTools(t *testing.T) {
	for _, s := range []string{"a", "z9_", "read_file", "a" + strings.Repeat("_", 62)} {
		if !named(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "_a", "1a", "A", "aB", "a-b", "a b", "a\n", "\na", "aé", "a\x00b", "a" + strings.Repeat("b", 63)} {
		if named(s) {
			t.Errorf("%q is taken", s)
		}
	}
}
