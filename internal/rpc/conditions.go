package rpc

import (
	"regexp"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// Conditions are a request's preconditions about the file that it replaces or removes. They
// are checked on the file that was displaced; if they do not hold, nothing is changed.
type Conditions struct {
	Match     string `header:"If-Match" maxLength:"200" doc:"one ETag, or * for anything that is there"`
	NoneMatch string `header:"If-None-Match" maxLength:"200" doc:"*: nothing is there"`
}

// OnlyOn are the conditions that Condition turns into only.
func OnlyOn(only string) Conditions {
	switch only {
	case "":
		return Conditions{}
	case view.AnyVersion:
		return Conditions{Match: "*"}
	case view.NoVersion:
		return Conditions{NoneMatch: "*"}
	}
	return Conditions{Match: `"` + only + `"`}
}

// Conditional reports whether the request has any condition.
func (c Conditions) Conditional() bool { return c != Conditions{} }

// Condition is what may be displaced: one version, view.AnyVersion, view.NoVersion, or ""
// for anything and nothing.
func (c Conditions) Condition() (string, error) {
	switch version, ok := strings.CutPrefix(strings.TrimSuffix(c.Match, `"`), `"`); {
	case !c.Conditional():
		return "", nil
	case c.Match == "" && c.NoneMatch == "*":
		return view.NoVersion, nil
	case c.NoneMatch == "" && c.Match == "*":
		return view.AnyVersion, nil
	case c.NoneMatch == "" && ok && versionForm().MatchString(version):
		return version, nil
	case c.NoneMatch == "" && ok && !strings.ContainsAny(version, `",`):
		return noVersion, nil // a tag that this server never gave out
	}
	return "", &contract.FieldError{Field: "If-Match", Reason: "takes one ETag, or * there or in If-None-Match"}
}

// Validate implements validation.
func (c Conditions) Validate() error {
	_, err := c.Condition()
	return err
}

// noVersion is a version that no file has.
var noVersion = strings.Repeat("0", 40)

var versionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`) })
