package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"slices"

	"choir.dev/choiros/internal/lazy"
)

// testsBegin matches the line before the first test in a Rust file. By convention tests are
// at the end of the file whose code they test.
var testsBegin = lazy.Regexp(`(?m)^[ \t]*#\[(?:cfg\(test\)|(?:[a-z_]+::)*test(?:\([^\]\n]*\))?)\]`)

// MayHaveTests reports whether a file is one of code that may have tests at its end, and
// not a file of tests.
func MayHaveTests(name string) bool { return path.Ext(name) == ".rs" && guardKind(name) == "" }

// split divides a file of code from the tests at its end. A file that is a test by its name
// or place has no such end.
func split(name string, text []byte) (code, tests []byte) {
	if !MayHaveTests(name) {
		return text, nil
	}
	at := testsBegin().FindIndex(text)
	if at == nil {
		return text, nil
	}
	return text[:at[0]], text[at[0]:]
}

// Splice is a file of code with the base's tests at its end; false when the base's file has
// none.
func Splice(name string, base, change []byte) ([]byte, bool) {
	_, tests := split(name, base)
	if tests == nil {
		return nil, false
	}
	code, _ := split(name, change)
	return slices.Concat(code, []byte("\n"), tests), true
}

// within is a hash of the tests at the end of a file of code, "" when it has none.
func within(root *os.Root, name string) string {
	if !MayHaveTests(name) || !exists(root, name) {
		return ""
	}
	text, err := slurp(root, name)
	if err != nil {
		return "" // it can't be compiled either
	}
	_, tests := split(name, text)
	if tests == nil {
		return ""
	}
	sum := sha256.Sum256(tests)
	return hex.EncodeToString(sum[:16])
}
