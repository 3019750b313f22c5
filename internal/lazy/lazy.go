// Package lazy makes at its first use what a package would otherwise make before
// main begins: every verb of the command line starts with the whole program, and
// most of them use next to nothing of it.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression when it is first asked for. One that can't be
// compiled panics then, so whatever uses it has a test that does.
func Regexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
