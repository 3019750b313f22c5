package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
)

// Verb declares one verb of the command line, once: its help, docs/cli.md, the
// completions and the manual pages come from it.
type Verb struct {
	Use   string // its name, then its arguments as help shows them, each named by its Kind
	Short string // one line, without its full stop
	Long  string // further explanation, in whole sentences
	// Examples are whole command lines.
	Examples []string
	Args     Arguments
	// Ready refuses a call whose arguments and flags don't go together, before anything is
	// sent.
	Ready func(args []string) error
	// JSON is a value of the type that --json prints, from which the pages describe its
	// members; Raw says what is printed instead of JSON, with or without --json. One of the
	// two is set unless the verb only holds others.
	JSON any
	Raw  string
	// Data says that a verb without Asks uses a data directory.
	Data bool
	// Failure is the exit code when choir itself fails, for a verb that passes on another
	// program's exit code.
	Failure Exit
	// Flags adds the verb's own flags.
	Flags func(*pflag.FlagSet)
	// One of the three is set: Asks uses a running control plane, Does needs none, Verbs
	// are further verbs behind its name. A verb may have both Asks and Verbs; Asks then
	// runs if none of them is named.
	Asks  func(ctx context.Context, t *Call, c *client.Client, args []string) error
	Does  func(ctx context.Context, t *Call, args []string) error
	Verbs []Verb
}

// Topic is a group of verbs, as help and the pages list them.
type Topic struct {
	Name  string
	Verbs []Verb
}

// Arguments bounds the number of arguments; most < 0: any number.
type Arguments struct{ least, most int }

// Exactly is n arguments.
func Exactly(n int) Arguments { return Arguments{n, n} }

// Between is at least least arguments, and at most most unless that is negative.
func Between(least, most int) Arguments { return Arguments{least, most} }

// Bounds are the smallest and the largest number.
func (a Arguments) Bounds() (least, most int) { return a.least, a.most }

// check refuses a wrong number of arguments as a usage error.
func (a Arguments) check(cmd *cobra.Command, args []string) error {
	if len(args) < a.least || (a.most >= 0 && len(args) > a.most) {
		return Usage(fmt.Errorf("usage: %s", cmd.UseLine()))
	}
	return nil
}

// command makes the command that v declares, with completions if there are kinds.
func (v Verb) command(kinds map[string]Kind) *cobra.Command {
	cmd := holder(v.Use, v.Short)
	if v.Long != "" {
		cmd.Long = v.Short + ".\n\n" + v.Long
	}
	if len(v.Examples) > 0 {
		cmd.Example = "  " + strings.Join(v.Examples, "\n  ")
	}
	for _, inner := range v.Verbs {
		cmd.AddCommand(inner.command(kinds))
	}
	if v.Asks == nil && v.Does == nil {
		return cmd
	}
	t := &Call{cmd: cmd}
	if v.Flags != nil {
		v.Flags(cmd.Flags())
	}
	cmd.Flags().BoolVar(&t.JSON, "json", false, v.says())
	do := func(ctx context.Context, args []string) error { return v.Does(ctx, t, args) }
	if v.Asks != nil || v.Data {
		cmd.Flags().StringVar(&t.Data, "data", "", "`DIR` of the data; else the configured one")
	}
	if v.Asks != nil {
		cmd.Flags().StringVar(&t.computer, "computer", "", "id of the `COMPUTER`, where there are several")
		do = func(ctx context.Context, args []string) error {
			c, err := t.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return v.Asks(ctx, t, c, args)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.failed(do(cmd.Context(), args)) }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := v.Args.check(cmd, args)
		if err == nil && v.Ready != nil {
			err = v.Ready(args)
		}
		return v.failed(err)
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return v.failed(Usage(err)) })
	if kinds != nil {
		v.completes(cmd, t, kinds)
	}
	return cmd
}

// failed gives an error of choir's own the verb's exit code.
func (v Verb) failed(err error) error {
	var theirs Exit
	if err == nil || v.Failure == 0 || errors.As(err, &theirs) {
		return err
	}
	return failure{err, v.Failure}
}

// says describes what --json does.
func (v Verb) says() string {
	if v.JSON == nil {
		return "changes nothing here: it prints " + v.Raw
	}
	return "print JSON"
}
