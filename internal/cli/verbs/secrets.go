package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// secretName is a secret without its value.
type secretName struct {
	ID string `json:"id"`
}

// Secrets is choir secrets.
func Secrets() cli.Verb {
	return cli.Verb{Use: "secrets", Short: "Keep secrets, such as ANTHROPIC_API_KEY, encrypted on this machine", Verbs: []cli.Verb{
		{
			Use: "set SECRET", Short: "Store a secret; its value is read from standard input", Args: cli.Exactly(1), JSON: secretName{},
			Examples: []string{"choir secrets set ANTHROPIC_API_KEY <key.txt"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				value, err := readSecret("secrets set "+args[0], "Value")
				if err != nil {
					return err
				}
				if err := c.SetSecret(ctx, args[0], value); err != nil {
					return err
				}
				return t.Show(secretName{args[0]}, func(w io.Writer) { terminal.Row(w, "stored", args[0]) })
			},
		},
		{
			Use: "ls", Short: "List the names of stored secrets", Args: cli.Exactly(0), JSON: []view.Secret{},
			Examples: []string{"choir secrets ls"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
				secrets, err := c.Secrets(ctx)
				if err != nil {
					return err
				}
				return t.Show(cli.List(secrets), func(w io.Writer) {
					for _, s := range secrets {
						terminal.Row(w, s.ID, s.Source, terminal.Time(s.Updated))
					}
				})
			},
		},
		{
			Use: "rm SECRET", Short: "Remove a secret", Args: cli.Exactly(1), JSON: removed{},
			Examples: []string{"choir secrets rm ANTHROPIC_API_KEY"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				if err := c.RemoveSecret(ctx, args[0]); err != nil {
					return err
				}
				return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "removed", args[0]) })
			},
		},
	}}
}

// readSecret reads a value without showing it: from a terminal with echo off,
// else all of standard input without the line end.
func readSecret(op, what string) (string, error) {
	var b []byte
	var err error
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprint(os.Stderr, what+" (not shown): ")
		b, err = term.ReadPassword(fd)
		fmt.Fprintln(os.Stderr)
	} else {
		b, err = io.ReadAll(io.LimitReader(os.Stdin, 64<<10+2))
	}
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(b), "\r\n")
	if value == "" {
		return "", fault.New(op, fault.Invalid, "Pipe it in: printf %s VALUE | choir "+op, errors.New("standard input is empty"))
	}
	return value, nil
}

// Models is choir models.
func Models() cli.Verb {
	return cli.Verb{
		Use: "models", Short: "List models; models test [MODEL] asks one for a word", Args: cli.Exactly(0), JSON: []view.Model{},
		Examples: []string{"choir models"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			models, err := c.Models(ctx)
			if err != nil {
				return err
			}
			return t.Show(cli.List(models), func(w io.Writer) {
				for _, m := range models {
					state := "-"
					if m.Available {
						state = "available"
					}
					if m.Default {
						state = "default"
					}
					terminal.Row(w, m.ID, state, strings.Join(m.Aliases, ","), m.Note)
				}
			})
		},
		Verbs: []cli.Verb{{
			Use: "test [MODEL]", Short: "Ask a model for a word", Args: cli.Between(0, 1), JSON: view.ModelTest{},
			Examples: []string{"choir models test", "choir models test anthropic/claude"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				name := ""
				if len(args) == 1 {
					name = args[0]
				}
				r, err := c.TestModel(ctx, name)
				if err != nil {
					return err
				}
				if err := t.Show(r, func(w io.Writer) {
					if r.OK {
						terminal.Row(w, r.ID, "answers", fmt.Sprintf("%d ms", r.DurationMS))
					} else {
						terminal.Row(w, cmp.Or(r.ID, name, "the default model"), "fails", r.Error, r.Hint)
					}
				}); err != nil {
					return err
				}
				if !r.OK {
					return cli.ExitFailed
				}
				return nil
			},
		}},
	}
}
