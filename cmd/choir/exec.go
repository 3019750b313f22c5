package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

func execVerb() verb {
	var cwd string
	return verb{
		use: "exec [--cwd P] -- CMD…", short: "Run a command of your own on the live files, checkpoints around it", args: between(1, -1), json: view.Exit{},
		examples: []string{"choir exec -- make test", "choir exec --cwd workspace/project -- sh -c 'git log | head'"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			stdout, outDone := onScreen(os.Stdout)
			stderr, errDone := onScreen(os.Stderr)
			eio := view.ExecIO{Stdout: stdout, Stderr: stderr}
			if t.json {
				eio.Stdout = stderr
			}
			if st, err := os.Stdin.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 {
				eio.Stdin = os.Stdin
			}
			exit, err := c.Exec(ctx, view.ExecRequest{Argv: args, Cwd: cwd}, eio)
			if err = errors.Join(err, outDone(), errDone()); err != nil {
				return err
			}
			if t.json {
				if err := printJSON(exit); err != nil {
					return err
				}
			}
			if !t.json {
				printUnkept(os.Stderr, exit.Unkept)
			}
			if exit.Reason != "" {
				fmt.Fprintf(os.Stderr, "choir: the command was ended: %s\n", oneLine(exit.Reason, 300))
			}
			if exit.Code != 0 {
				return exitError(exit.Code)
			}
			return nil
		},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&cwd, "cwd", "", "folder to run in, relative to the computer's root")
			f.SetInterspersed(false) // what is behind the command is its own
		},
	}
}
