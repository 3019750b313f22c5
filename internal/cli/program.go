package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/fault"
)

// Program is a command line: its version and the verbs that it has.
type Program struct {
	Version string
	// Topics makes the verbs for each command line, in the order in which help lists them.
	Topics func() []Topic
	// Kinds are what the words in the verbs' Use stand for, for completions.
	Kinds func() map[string]Kind
}

// Execute runs the verb that args name, and returns the exit code. A signal ends the
// verb's context.
func (p Program) Execute(args []string) int {
	ctx, signals := listenToSignals(context.Background())
	defer signals.close()
	return p.run(ctx, args)
}

func (p Program) run(ctx context.Context, args []string) int {
	root := p.Root(args...)
	root.SetArgs(args)
	var out shown
	root.SetOut(&out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.err
	}
	var code Exit
	var by interrupted
	var of failure
	switch {
	case err == nil:
		return int(exitDone)
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &by), errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &by):
		fmt.Fprintf(os.Stderr, "choir: %s\n", terminal.Plain(by.Error()))
		return exitSignal + int(by.signal)
	}
	status := codeOf(err)
	if errors.As(err, &of) {
		status, err = of.code, of.error
	}
	fmt.Fprintf(os.Stderr, "choir: %s\n", Sentence(ofOutput(err)))
	return int(status)
}

// shown is standard output for what the library prints itself, such as help. The library
// drops errors of writing, so the first is kept here.
type shown struct{ err error }

func (s *shown) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// ofOutput says of an error that it is standard output's, if it is. Nothing is the matter
// with choir's data then, as the hint for a full disk would have it.
func ofOutput(err error) error {
	var path *fs.PathError
	if !errors.As(err, &path) || path.Op != "write" || path.Path != os.Stdout.Name() {
		return err
	}
	return fault.New("cli.Execute", fault.Unavailable, "Have it go where it can be written; nothing is the matter with what choir stores.", fmt.Errorf("the output can't be written: %w", path.Err))
}

// Root makes the command line from the declarations: for the verb that args name alone,
// because making the flags of fifty others takes longer than most verbs do, or for all if
// args name no verb.
func (p Program) Root(args ...string) *cobra.Command {
	root := holder("choir", "ChoirOS, the automatic computer")
	root.SilenceErrors, root.SilenceUsage = true, true
	p.versionFlag(root)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	topics := p.Topics()
	args, completed := completing(args)
	var kinds map[string]Kind // nil unless completions are requested
	if completed {
		kinds = p.Kinds()
	}
	for _, topic := range topics {
		for _, v := range topic.Verbs {
			if len(args) > 0 && v.name() == args[0] {
				root.AddCommand(v.command(kinds))
				return root
			}
		}
	}
	for _, topic := range topics {
		root.AddGroup(&cobra.Group{ID: topic.Name, Title: topic.Name + ":"})
		for _, v := range topic.Verbs {
			cmd := v.command(kinds)
			cmd.GroupID = topic.Name
			root.AddCommand(cmd)
		}
	}
	helpOfVerbs(root)
	return root
}

// helpOfVerbs makes the library's help command refuse words that are no verb: by itself it
// lists the verbs and succeeds.
func helpOfVerbs(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		show := cmd.Run
		cmd.Run = nil
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return Usage(fmt.Errorf("there is no verb %q; %s --help lists them", strings.Join(args, " "), of.CommandPath()))
			}
			show(cmd, args)
			return nil
		}
	}
}

// holder is a command that only holds others.
func holder(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage(fmt.Errorf("there is no verb %q; %s --help lists them", args[0], cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// Completion is the verb that prints a shell's completion script.
func (p Program) Completion() Verb {
	return Verb{
		Use: "completion SHELL", Short: "Print what makes bash, zsh or fish complete choir's verbs, flags and what they name", Args: Exactly(1), Raw: "a script for the shell",
		Long:     "What verbs name, such as a run, a checkpoint or a file of the computer, is asked of the control plane that runs; a sleeping computer is not\nwoken for it.",
		Examples: []string{"choir completion bash >~/.local/share/bash-completion/completions/choir", "choir completion fish | source"},
		Does: func(_ context.Context, t *Call, args []string) error {
			root := t.cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(os.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(os.Stdout)
			case "fish":
				return root.GenFishCompletion(os.Stdout, true)
			}
			return Usage(fmt.Errorf("there are completions for bash, zsh and fish, and none for %q", terminal.OneLine(args[0], 40)))
		},
	}
}
