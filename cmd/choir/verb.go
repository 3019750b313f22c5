package main

//go:generate env CHOIR_CLI_WRITE=1 go test -count=1 -run ^TestThePageIsWhatIsDeclared$ .

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
)

// verb declares one verb of the command line, once: its help, docs/cli.md, the
// completions and the manual pages come from it.
type verb struct {
	use   string // its name, then its arguments as help shows them
	short string // one line, without its full stop
	long  string // what short leaves open, in whole sentences
	// examples are whole command lines.
	examples []string
	args     arguments
	// ready refuses a call whose arguments and flags don't go together, before
	// anybody is asked.
	ready func(args []string) error
	// json is a value of what --json prints, from which the pages tell its
	// members; raw says what is printed instead of JSON, whether or not --json is
	// given. One of the two is there unless the verb only holds others.
	json any
	raw  string
	// data says that a verb that asks nobody is about a data directory.
	data bool
	// ours is the exit code where choir fails, of a verb that passes on another
	// program's.
	ours int
	// flags adds what it has beside the flags of all.
	flags func(*pflag.FlagSet)
	// Of the three one is there: asks talks to a running control plane, does
	// needs none, verbs are further ones behind its name. A verb may have asks
	// beside verbs, for where none of them is named.
	asks  func(ctx context.Context, t *talk, c *client.Client, args []string) error
	does  func(ctx context.Context, t *talk, args []string) error
	verbs []verb
}

// topic is verbs that belong together, as help and the pages list them.
type topic struct {
	name  string
	verbs []verb
}

// arguments bounds how many there are; most < 0: any number.
type arguments struct{ least, most int }

func exactly(n int) arguments           { return arguments{n, n} }
func between(least, most int) arguments { return arguments{least, most} }

// check refuses a wrong number as a mistake in how the verb was called.
func (a arguments) check(cmd *cobra.Command, args []string) error {
	if len(args) < a.least || (a.most >= 0 && len(args) > a.most) {
		return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
	}
	return nil
}

// newRoot makes the command line of what is declared: of the verb that args name
// alone, for flags of fifty others take longer to make than most verbs to ask, or
// of all where they name none that is declared.
func newRoot(args ...string) *cobra.Command {
	root := holder("choir", "ChoirOS, the automatic computer")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	topics := topics()
	for _, topic := range topics {
		for _, v := range topic.verbs {
			if len(args) > 0 && v.name() == args[0] {
				root.AddCommand(v.command())
				return root
			}
		}
	}
	for _, topic := range topics {
		root.AddGroup(&cobra.Group{ID: topic.name, Title: topic.name + ":"})
		for _, v := range topic.verbs {
			cmd := v.command()
			cmd.GroupID = topic.name
			root.AddCommand(cmd)
		}
	}
	return root
}

// holder is a command that only holds others.
func holder(use, short string) *cobra.Command {
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

// command makes the command that v declares.
func (v verb) command() *cobra.Command {
	cmd := holder(v.use, v.short)
	if v.long != "" {
		cmd.Long = v.short + ".\n\n" + v.long
	}
	if len(v.examples) > 0 {
		cmd.Example = "  " + strings.Join(v.examples, "\n  ")
	}
	for _, inner := range v.verbs {
		cmd.AddCommand(inner.command())
	}
	if v.asks == nil && v.does == nil {
		return cmd
	}
	t := &talk{cmd: cmd}
	if v.flags != nil {
		v.flags(cmd.Flags())
	}
	cmd.Flags().BoolVar(&t.json, "json", false, v.says())
	do := func(ctx context.Context, args []string) error { return v.does(ctx, t, args) }
	if v.asks != nil || v.data {
		cmd.Flags().StringVar(&t.data, "data", "", "data directory; else the configured one")
	}
	if v.asks != nil {
		cmd.Flags().StringVar(&t.computer, "computer", "", "computer id, where there are several")
		do = func(ctx context.Context, args []string) error {
			c, err := t.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return v.asks(ctx, t, c, args)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.failed(do(cmd.Context(), args)) }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := v.args.check(cmd, args)
		if err == nil && v.ready != nil {
			err = v.ready(args)
		}
		return v.failed(err)
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return v.failed(usageError{err}) })
	return cmd
}

// failure is an error with the exit code that its verb has for one.
type failure struct {
	error
	code int
}

func (f failure) Unwrap() error { return f.error }

// failed gives an error of choir's own the verb's exit code.
func (v verb) failed(err error) error {
	var theirs exitError
	if err == nil || v.ours == 0 || errors.As(err, &theirs) {
		return err
	}
	return failure{err, v.ours}
}

// says is what --json does.
func (v verb) says() string {
	if v.json == nil {
		return "changes nothing here: it prints " + v.raw
	}
	return "print JSON"
}
