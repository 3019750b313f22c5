package harness

import (
	"strings"
	"testing"
)

// TestNamesThatVendorsTake: vendors accept letters, digits, _ and -, 64 in all.
func TestNamesThatVendorsTake(t *testing.T) {
	for _, s := range []string{"a", "9", "-", "_x-Y9", strings.Repeat("z", 64)} {
		if !toolName(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "a b", "a.b", "a\n", "\na", "é", "a\x00b", "a/b", strings.Repeat("z", 65)} {
		if toolName(s) {
			t.Errorf("%q is taken", s)
		}
	}
}
