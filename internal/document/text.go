package document

import (
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// Nobody is a person who is not known: an edit was only noticed in a file, whoever or
// whichever program of theirs wrote it.
var Nobody = contract.Person("")

// By is the author for an actor who is a person, or acts for one.
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
