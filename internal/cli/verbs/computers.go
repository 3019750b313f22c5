package verbs

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Computers lists the computers, whatever their state: none of them is woken for it.
func Computers() cli.Verb {
	return cli.Verb{
		Use: "computers", Short: "List the computers of this control plane", Args: cli.Exactly(0), JSON: []view.Computer{},
		Examples: []string{"choir computers"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			all, err := c.Computers(ctx)
			if err != nil {
				return err
			}
			return t.Show(cli.List(all), func(w io.Writer) {
				for _, info := range all {
					terminal.Row(w, info.ID, terminal.OneLine(info.Name, 80), info.State, terminal.Time(info.Created), info.Desktop)
				}
			})
		},
		Verbs: []cli.Verb{{
			Use: "create NAME", Short: "Make another computer, which is awake when this ends", Args: cli.Exactly(1), JSON: view.Computer{},
			Examples: []string{`choir computers create Second`},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				info, err := c.Create(ctx, "", args[0])
				if err != nil {
					return err
				}
				return t.Show(info, func(w io.Writer) {
					printWoken(w, info)
					terminal.Row(w, "id", info.ID)
					terminal.Row(w, "desktop", info.Desktop)
				})
			},
		}, forked(), {
			Use: "remove COMPUTER", Short: "Remove a computer, whole; for a week it can be put back", Args: cli.Exactly(1), JSON: view.Computer{},
			Examples: []string{"choir computers remove abcdefgh12345678"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				return aboutOne(t, args[0], func(cid contract.CID) (view.Computer, error) { return c.Computer(cid).RemoveComputer(ctx) }, func(w io.Writer, info view.Computer) {
					terminal.Row(w, "removed", info.ID, terminal.OneLine(info.Name, 80))
					terminal.Row(w, "until "+terminal.Time(info.Gone), "choir computers put-back "+string(info.ID)+" brings it back as it was")
				})
			},
		}, {
			Use: "removed", Short: "List the computers that were removed and can be put back", Args: cli.Exactly(0), JSON: []view.Computer{},
			Examples: []string{"choir computers removed"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
				all, err := c.RemovedComputers(ctx)
				if err != nil {
					return err
				}
				return t.Show(cli.List(all), func(w io.Writer) {
					for _, info := range all {
						terminal.Row(w, info.ID, terminal.OneLine(info.Name, 80), "removed "+terminal.Time(info.Removed), "gone "+terminal.Time(info.Gone))
					}
				})
			},
		}, {
			Use: "put-back REMOVED", Short: "Put a computer back that was removed", Args: cli.Exactly(1), JSON: view.Computer{},
			Examples: []string{"choir computers put-back abcdefgh12345678"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				return aboutOne(t, args[0], func(cid contract.CID) (view.Computer, error) { return c.Computer(cid).PutComputerBack(ctx) }, printWoken)
			},
		}},
	}
}

// aboutOne asks something of the computer that an argument names, and shows it.
func aboutOne(t *cli.Call, id string, ask func(contract.CID) (view.Computer, error), text func(io.Writer, view.Computer)) error {
	cid := contract.CID(id)
	if err := cid.Validate(); err != nil {
		return cli.Usage(err)
	}
	info, err := ask(cid)
	if err != nil {
		return err
	}
	return t.Show(info, func(w io.Writer) { text(w, info) })
}

func forked() cli.Verb {
	var from, checkpoint string
	return cli.Verb{
		Use: "fork NAME", Short: "Make another computer with the files and documents of a checkpoint of one", Args: cli.Exactly(1), JSON: view.Computer{},
		Examples: []string{"choir computers fork Attempt", "choir computers fork Attempt --checkpoint 1a2b3c4"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&from, "from", "", "the `COMPUTER` to fork; without it the one that --computer names")
			f.StringVar(&checkpoint, "checkpoint", "", "of which `CHECKPOINT`; without it one is made first")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if from != "" {
				c = c.Computer(contract.CID(from))
			}
			info, err := c.Fork(ctx, "", args[0], checkpoint)
			if err != nil {
				return err
			}
			return t.Show(info, func(w io.Writer) {
				printWoken(w, info)
				terminal.Row(w, "id", info.ID)
				terminal.Row(w, "desktop", info.Desktop)
			})
		},
	}
}
