package document

import (
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// ByUser is the author of what a user wrote; "" is the computer's user.
func ByUser(user string) Author {
	name := user
	if name == "" {
		name = string(contract.RoleUser)
	}
	return Author{Name: name, Role: contract.RoleUser, User: user}
}

// IsText reports whether bytes can be a document's text.
func IsText(b []byte) bool {
	return len(b) <= MaxBody && utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}
