package document

import (
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// Nobody is the person whose hand is only seen in a file: a program of theirs
// wrote it, or they did so while nobody looked.
var Nobody = contract.Person("")

// By is the author of what a person wrote, or what acts for them.
func By(a contract.Actor) Author {
	name := a.Account()
	if name == "" {
		name = string(a.Kind)
	}
	return Author{Name: name, By: a}
}

// IsText reports whether bytes can be a document's text.
func IsText(b []byte) bool {
	return len(b) <= MaxBody && utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}
