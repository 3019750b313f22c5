package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// secretName is a secret without its value.
type secretName struct {
	ID string `json:"id"`
}

func secretsVerb() verb {
	return verb{use: "secrets", short: "Keep secrets, such as ANTHROPIC_API_KEY, encrypted on this machine", verbs: []verb{
		{
			use: "set NAME", short: "Store a secret; its value is read from standard input", args: exactly(1), json: secretName{},
			examples: []string{"choir secrets set ANTHROPIC_API_KEY <key.txt"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				value, err := readSecret()
				if err != nil {
					return err
				}
				if err := c.SetSecret(ctx, args[0], value); err != nil {
					return err
				}
				return t.show(secretName{args[0]}, func(w io.Writer) { row(w, "stored", args[0]) })
			},
		},
		{
			use: "ls", short: "List the names of stored secrets", args: exactly(0), json: []view.Secret{},
			examples: []string{"choir secrets ls"},
			asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
				secrets, err := c.Secrets(ctx)
				if err != nil {
					return err
				}
				return t.show(list(secrets), func(w io.Writer) {
					for _, s := range secrets {
						row(w, s.ID, s.Source, ago(s.Updated))
					}
				})
			},
		},
		{
			use: "rm NAME", short: "Remove a secret", args: exactly(1), json: removed{},
			examples: []string{"choir secrets rm ANTHROPIC_API_KEY"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				if err := c.RemoveSecret(ctx, args[0]); err != nil {
					return err
				}
				return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "removed", args[0]) })
			},
		},
	}}
}

// readSecret reads a value without showing it: from a terminal with echo off,
// else all of standard input without the line end.
func readSecret() (string, error) {
	var b []byte
	var err error
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprint(os.Stderr, "Value (not shown): ")
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
		return "", fault.New("secrets set", fault.Invalid, "Pipe the value in: printf %s VALUE | choir secrets set NAME", errors.New("the value is empty"))
	}
	return value, nil
}

func modelsVerb() verb {
	return verb{
		use: "models", short: "List models; models test [NAME] asks one for a word", args: exactly(0), json: []view.Model{},
		examples: []string{"choir models"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			models, err := c.Models(ctx)
			if err != nil {
				return err
			}
			return t.show(list(models), func(w io.Writer) {
				for _, m := range models {
					state := "-"
					if m.Available {
						state = "available"
					}
					if m.Default {
						state = "default"
					}
					row(w, m.ID, state, strings.Join(m.Aliases, ","), m.Note)
				}
			})
		},
		verbs: []verb{{
			use: "test [NAME]", short: "Ask a model for a word", args: between(0, 1), json: view.ModelTest{},
			examples: []string{"choir models test", "choir models test anthropic/claude"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				name := ""
				if len(args) == 1 {
					name = args[0]
				}
				r, err := c.TestModel(ctx, name)
				if err != nil {
					return err
				}
				if err := t.show(r, func(w io.Writer) {
					if r.OK {
						row(w, r.ID, "answers", fmt.Sprintf("%d ms", r.DurationMS))
					} else {
						row(w, r.ID, "fails", r.Error, r.Hint)
					}
				}); err != nil {
					return err
				}
				if !r.OK {
					return exitError(exitFailed)
				}
				return nil
			},
		}},
	}
}
