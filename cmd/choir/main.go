// Command choir is ChoirOS: the control plane and the command line that talks to
// it. A build that carries no guest binary is the guest inside boxes, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
)

func main() {
	asGuest(os.Args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// exitError carries a command's own exit code; its message was printed already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError marks a mistake in how a verb was called.
type usageError struct{ error }

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitError
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "choir: %s\n", plain(err.Error()))
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "choir: %s\n", sentence(err))
	switch fault.CodeOf(err) {
	case fault.Unreachable:
		return exitUnreachable
	case fault.NeedsInput:
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

func newRoot() *cobra.Command {
	root := group("choir", "ChoirOS, the automatic computer")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(upCmd(), promptCmd(), execCmd(), runsCmd(), runCmd(), approvalsCmd(), approveCmd(), egressCmd(), eventsCmd(), checkpointsCmd(), checkpointCmd(),
		diffCmd(), restoreCmd(), undoCmd(), filesCmd(), addCmd(), secretsCmd(), modelsCmd(), rebuildCmd(), wakeCmd(), exportCmd(), recoverCmd(), benchCmd(), doctorCmd(), versionCmd())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return root
}

// group is a command that only holds others.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no verb %q; %s --help lists them", args[0], cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// exactly and between check the number of arguments as a usage error.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || (most >= 0 && len(args) > most) {
			return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
		}
		return nil
	}
}
