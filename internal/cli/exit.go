package cli

import (
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/fault"
)

// Exit is the exit code of a verb, as an error whose message was printed already. Scripts
// depend on the codes.
type Exit int

// The exit codes that verbs have in common.
const (
	exitDone        Exit = 0
	ExitFailed      Exit = 1
	exitUsage       Exit = 2
	exitUnreachable Exit = 3
	ExitNeedsInput  Exit = 4
	ExitGoesOn      Exit = 5
)

// exitSignal plus a signal's number is the exit code after that signal, as in shells.
const exitSignal = 128

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError marks a mistake in how a verb was called.
type usageError struct{ error }

// Usage says that err is a mistake in how a verb was called.
func Usage(err error) error { return usageError{err} }

// codeOf is the exit code for what went wrong.
func codeOf(err error) Exit {
	var usage usageError
	switch {
	case errors.As(err, &usage), fault.Is(err, fault.Invalid):
		return exitUsage
	case fault.Is(err, fault.Unreachable):
		return exitUnreachable
	case fault.Is(err, fault.NeedsInput):
		return ExitNeedsInput
	}
	return ExitFailed
}

// Sentence shows an error with what to do about it. It may repeat what a box, a
// file or a provider says.
func Sentence(err error) string {
	text := strings.TrimRight(strings.ReplaceAll(fault.Text(err), "\n", "; "), ".")
	if hint := fault.HintOf(err); hint != "" {
		text += ". " + hint
	}
	return terminal.Plain(text)
}

// failure is an error with the exit code that its verb has for one.
type failure struct {
	error
	code Exit
}

func (f failure) Unwrap() error { return f.error }
