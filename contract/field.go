package contract

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// FieldError says which field of a message is wrong, and why. Field is a path
// such as "steps[2].run.argv".
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// AsFieldError returns the first FieldError in err's tree, or nil.
func AsFieldError(err error) *FieldError {
	var fe *FieldError
	if errors.As(err, &fe) {
		return fe
	}
	return nil
}

func fieldErr(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// within prefixes a nested FieldError's path with parent.
func within(parent string, err error) error {
	if err == nil {
		return nil
	}
	var fe *FieldError
	if errors.As(err, &fe) {
		sep := "."
		if strings.HasPrefix(fe.Field, "[") {
			sep = ""
		}
		return &FieldError{Field: parent + sep + fe.Field, Reason: fe.Reason}
	}
	return &FieldError{Field: parent, Reason: err.Error()}
}

// text checks a string: valid UTF-8, no NUL, at most max bytes; required says
// it may not be empty.
func text(field, s string, max int, required bool) error {
	switch {
	case required && s == "":
		return fieldErr(field, "is required")
	case len(s) > max:
		return fieldErr(field, "is %d bytes long; at most %d are allowed", len(s), max)
	case !utf8.ValidString(s):
		return fieldErr(field, "is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return fieldErr(field, "contains a NUL byte")
	}
	return nil
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	for _, a := range allowed {
		if v == a {
			return nil
		}
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return fieldErr(field, "is %q; allowed: %s", string(v), strings.Join(names, ", "))
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
