// Package lazy initialises values at their first use instead of before main begins: every
// verb of the command line starts the whole program, and most verbs use very little of it.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression when it is first used. An expression that can't be compiled
// panics only then, so each one needs a test that uses it.
func Regexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
