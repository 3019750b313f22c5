package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Wake is choir wake, for a computer that does not wake: checkpoints, diff, restore and
// export work on one as well.
func Wake() cli.Verb {
	var without bool
	return cli.Verb{
		Use: "wake", Short: "Say whether the computer is awake; if not, why, and try again", Args: cli.Exactly(0), JSON: view.Computer{},
		Examples: []string{"choir wake", "choir wake --without-tasks"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			info, err := c.Wake(ctx, view.WakeRequest{WithoutTasks: without})
			if err != nil {
				return err
			}
			if err := t.Show(info, func(w io.Writer) { printWoken(w, info) }); err != nil {
				return err
			}
			if info.Trouble != nil {
				return cli.ExitFailed
			}
			return nil
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&without, "without-tasks", false, "open it without what interrupted tasks left, and give their runs up")
		},
	}
}

func printWoken(w io.Writer, c view.Computer) {
	terminal.Row(w, terminal.OneLine(c.Name, 80), string(c.State))
	if c.Trouble == nil {
		return
	}
	terminal.Row(w, "why", terminal.OneLine(c.Trouble.Reason, 1000))
	for _, d := range c.Trouble.Damage {
		terminal.Row(w, "damaged", terminal.OneLine(d, 300))
	}
	terminal.Row(w, "safe", c.Trouble.Safe)
	if c.Trouble.Hint != "" {
		terminal.Row(w, "what to do", terminal.OneLine(c.Trouble.Hint, 1000))
	}
	what := map[view.Repair]string{
		view.RepairRewind:       "choir checkpoints, choir restore ID --dry-run, choir restore ID",
		view.RepairWithoutTasks: "choir wake --without-tasks",
		view.RepairExport:       "choir export FILE",
		view.RepairRecover:      "Recover on the console",
	}
	for _, a := range c.Trouble.Actions {
		if what[a] != "" {
			terminal.Row(w, "or", what[a])
		}
	}
}

// exported is what export says of a file that it wrote.
type exported struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Export is choir export.
func Export() cli.Verb {
	return cli.Verb{
		Use: "export FILE", Short: "Write the computer's files and events to a tar archive, also of one that does not wake; - is standard output", Args: cli.Exactly(1), JSON: exported{},
		Examples: []string{"choir export computer.tar", "choir export - | gzip >computer.tar.gz"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if args[0] == "-" {
				if t.JSON {
					return cli.Usage(errors.New("with --json the archive goes to a file, for standard output has the answer: choir export FILE --json"))
				}
				_, err := c.Export(ctx, os.Stdout)
				return err
			}
			// What was there is not written over; what was cut off does not stay.
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fault.New("export", fault.Conflict, "Choose another name, or remove what is there.", fmt.Errorf("%s is there already", args[0]))
			}
			if err != nil {
				return err
			}
			p := terminal.NewProgress("exporting", 0)
			n, err := c.Export(ctx, p.To(f))
			p.End()
			if err == nil {
				err = f.Sync()
			}
			if err = errors.Join(err, f.Close()); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			return t.Show(exported{args[0], n}, func(w io.Writer) {
				terminal.Row(w, "exported", terminal.OneLine(args[0], 200), fmt.Sprintf("%d bytes", n))
			})
		},
	}
}
