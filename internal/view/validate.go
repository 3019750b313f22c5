package view

import (
	"net/url"
	"regexp"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
)

// Validate checks an action's form and its data. Data must be of the type's kind, and the
// type must be one that a person may submit.
func (a Action) Validate() error {
	info, ok := contract.Lookup(a.Type)
	if !ok || !info.Action {
		return &contract.FieldError{Field: "type", Reason: "is not something a person can say"}
	}
	if err := NewlyDrawn("id", a.ID); err != nil {
		return err
	}
	switch a.Type {
	case "run.steered", "run.commanded", "question.answered", "model.switched":
		if err := contract.ValidID("run", a.Run); err != nil {
			return err
		}
	default:
		if a.Run != "" {
			return &contract.FieldError{Field: "run", Reason: "is not for " + a.Type}
		}
	}
	if want := a.about(); a.Subject != "" && a.Subject != want {
		return &contract.FieldError{Field: "subject", Reason: "must be " + want + " or left out"}
	}
	if a.Data == nil {
		return &contract.FieldError{Field: "data", Reason: "is required"}
	}
	// A log may hold blank ones from before, so the contract takes them.
	switch d := a.Data.(type) {
	case *contract.PromptSubmitted:
		if strings.TrimSpace(d.Text) == "" {
			return &contract.FieldError{Field: "text", Reason: "is blank"}
		}
	case *contract.RunSteered:
		if strings.TrimSpace(d.Text) == "" {
			return &contract.FieldError{Field: "text", Reason: "is blank"}
		}
	}
	return a.Data.Validate()
}

// About returns the action with the subject that its event gets.
func (a Action) About() Action {
	a.Subject = a.about()
	return a
}

func (a Action) about() string {
	window := ""
	switch d := a.Data.(type) {
	case *contract.WindowOpened:
		window = d.Window
	case *contract.WindowMoved:
		window = d.Window
	case *contract.WindowFocused:
		window = d.Window
	case *contract.WindowClosed:
		window = d.Window
	}
	if window == "" {
		return ""
	}
	return "window/" + window
}

// NewlyDrawn checks an id that the sender drew: a UUIDv7. Version 8 is for ids derived from
// an event; one from outside could occupy the id of an event to come.
func NewlyDrawn(field, id string) error {
	if err := contract.ValidID(field, id); err != nil {
		return err
	}
	if id[14] != '7' {
		return &contract.FieldError{Field: field, Reason: "must be a UUID of version 7"}
	}
	return nil
}

// Valid checks a command and returns it with an id.
func (r ExecRequest) Valid() (ExecRequest, error) {
	if r.ID == "" {
		r.ID = contract.NewID()
	} else if err := NewlyDrawn("id", r.ID); err != nil {
		return r, err
	}
	if r.Cwd != "" && r.Cwd != "." {
		if err := contract.ValidPath("cwd", r.Cwd); err != nil {
			return r, err
		}
	} else {
		r.Cwd = ""
	}
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return r, &contract.FieldError{Field: "argv", Reason: "names no program"}
	}
	for _, word := range r.Argv {
		if strings.IndexByte(word, 0) >= 0 {
			return r, &contract.FieldError{Field: "argv", Reason: "holds a NUL byte"}
		}
	}
	if t := r.Terminal; t != nil && (t.Rows < 1 || t.Cols < 1 || t.Rows > maxTerminal || t.Cols > maxTerminal || strings.ContainsFunc(t.Type, noTerminalType) || len(t.Type) > 64) {
		return r, &contract.FieldError{Field: "terminal", Reason: "is of 1 to 10000 rows and columns, and of a type such as xterm-256color"}
	}
	return r, nil
}

// maxTerminal bounds a terminal's sides.
const maxTerminal = 10_000

func noTerminalType(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-+._", r))
}

// Validate checks a signal to a command.
func (s CommandSignal) Validate() error {
	if (s.Rows == 0) != (s.Cols == 0) || s.Rows < 0 || s.Cols < 0 || s.Rows > maxTerminal || s.Cols > maxTerminal {
		return &contract.FieldError{Field: "rows", Reason: "and cols are given together, from 1 to 10000"}
	}
	if s.Signal == "" && s.Rows == 0 {
		return &contract.FieldError{Field: "signal", Reason: "or a size must be given"}
	}
	return nil
}

// Validate checks the form of a request for a diff.
func (r DiffRequest) Validate() error {
	if r.Path != "" {
		if err := contract.ValidPath("path", r.Path); err != nil {
			return err
		}
	}
	if err := validRevision("from", r.From, true); err != nil {
		return err
	}
	return validRevision("to", r.To, true)
}

// Validate checks the form of a request to restore.
func (r RestoreRequest) Validate() error {
	set := 0
	for _, ok := range []bool{r.To != "", r.Run != "", r.Undo} {
		if ok {
			set++
		}
	}
	switch {
	case set > 1 || set == 0 && len(r.Paths) != 1:
		return &contract.FieldError{Field: "to", Reason: "exactly one of to, run and undo must be given, or one path"}
	case len(r.Paths) > 0 && r.Undo:
		return &contract.FieldError{Field: "paths", Reason: "an undo is of all that the last thing changed"}
	}
	if r.Run != "" {
		if err := contract.ValidID("run", r.Run); err != nil {
			return err
		}
	}
	if len(r.Paths) > 200 {
		return &contract.FieldError{Field: "paths", Reason: "has too many entries; at most 200 are allowed"}
	}
	for _, p := range r.Paths {
		if err := contract.ValidPath("paths", p); err != nil {
			return err
		}
	}
	if trashEntry().MatchString(r.To) {
		return nil
	}
	return validRevision("to", r.To, true)
}

// trashEntry is the pattern of the names of entries in the trash.
var trashEntry = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{8}T[0-9]{6}-[0-9]{9}-[0-9a-f]{16}$`) })

// ValidRevision checks that s is a commit id or the beginning of one.
func ValidRevision(field, s string) error { return validRevision(field, s, false) }

// validRevision checks a commit id or a prefix of one: never a name, which git
// would resolve, nor an option.
func validRevision(field, s string, optional bool) error {
	if s == "" && optional {
		return nil
	}
	ok := len(s) >= 7 && len(s) <= 64
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
	}
	if !ok {
		return &contract.FieldError{Field: field, Reason: "is not a checkpoint; give at least 7 of its hex digits"}
	}
	return nil
}

// Validate checks a request to fetch something.
func (r AddRequest) Validate() error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return &contract.FieldError{Field: "url", Reason: "must be an http or https URL"}
	case u.User != nil:
		return &contract.FieldError{Field: "url", Reason: "must not hold a user name or password; store credentials as a secret"}
	}
	if r.Name == "" {
		return nil
	}
	return ValidName("name", r.Name)
}

// ValidName checks a folder's name under workspace/.
func ValidName(field, name string) error {
	if strings.Contains(name, "/") || name == "." || strings.HasPrefix(name, "-") {
		return &contract.FieldError{Field: field, Reason: "must be one folder's name"}
	}
	return contract.ValidPath(field, name)
}
