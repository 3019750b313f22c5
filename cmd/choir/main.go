// Command choir is ChoirOS: the control plane and the command line that talks to
// it. A build that carries no guest binary is the guest inside boxes, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// version is set by the linker.
var version = "unknown"

// Exit codes; scripts depend on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNeedsInput  = 4
	exitGoesOn      = 5
	exitSignal      = 128 // and the signal's number, as shells have it
)

func main() {
	asGuest(os.Args)
	ctx, signals := listenToSignals(context.Background())
	code := run(ctx, os.Args[1:])
	signals.close()
	os.Exit(code)
}

// exitError carries a command's own exit code; its message was printed already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError marks a mistake in how a verb was called.
type usageError struct{ error }

func run(ctx context.Context, args []string) int {
	root := newRoot(args...)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitError
	var by interrupted
	var of failure
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &by), errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &by):
		fmt.Fprintf(os.Stderr, "choir: %s\n", plain(by.Error()))
		return exitSignal + int(by.signal)
	}
	status := codeOf(err)
	if errors.As(err, &of) {
		status, err = of.code, of.error
	}
	fmt.Fprintf(os.Stderr, "choir: %s\n", sentence(err))
	return status
}

// codeOf is the exit code for what went wrong.
func codeOf(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage), fault.Is(err, fault.Invalid):
		return exitUsage
	case fault.Is(err, fault.Unreachable):
		return exitUnreachable
	case fault.Is(err, fault.NeedsInput):
		return exitNeedsInput
	}
	return exitFailed
}

// sentence shows an error with what to do about it. It may repeat what a box, a
// file or a provider says.
func sentence(err error) string {
	text := strings.TrimRight(strings.ReplaceAll(fault.Text(err), "\n", "; "), ".")
	if hint := fault.HintOf(err); hint != "" {
		text += ". " + hint
	}
	return plain(text)
}

// topics is every verb, in the order in which help lists them.
func topics() []topic {
	return []topic{
		{"Working", []verb{promptVerb(), waitVerb(), answerVerb(), runsVerb(), runVerb(), approvalsVerb(), approveVerb(), execVerb()}},
		{"Files", []verb{filesVerb(), addVerb(), proposalsVerb(), exportVerb()}},
		{"Going back", []verb{checkpointsVerb(), checkpointVerb(), diffVerb(), restoreVerb(), undoVerb()}},
		{"Looking", []verb{eventsVerb(), egressVerb(), modelsVerb(), secretsVerb()}},
		{"People", []verb{membersVerb(), joinVerb(), accountsVerb(), tokensVerb()}},
		{"This machine", []verb{upVerb(), statusVerb(), openVerb(), logsVerb(), stopVerb(), configVerb(), computersVerb(), wakeVerb(), rebuildVerb(), doctorVerb(), recoverVerb(), benchVerb(), completionVerb(), manVerb(), versionVerb()}},
	}
}
