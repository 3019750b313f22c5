package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/fault"
)

// TestErrorsAreText: errors repeat texts of others, so control characters in them are escaped for
// the terminal.
func TestErrorsAreText(t *testing.T) {
	const hostile = "\x1b]0;owned\x07\u009d0;owned\u009c\x1b[2Ja\rb\x7f\x08\u202eeslaf\u2066\u2028c"
	said := cli.Sentence(fault.New("op", fault.Conflict, hostile, errors.New(hostile)))
	var obeyed []string
	for _, r := range said {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' {
			obeyed = append(obeyed, fmt.Sprintf("%U", r))
		}
	}
	if len(obeyed) > 0 || !strings.Contains(said, "owned") {
		t.Errorf("%v in %q", obeyed, said)
	}
}
