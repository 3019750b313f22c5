package main

import (
	"context"
	"io"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// computersVerb lists the computers, whatever their state: none of them is woken for it.
func computersVerb() verb {
	return verb{
		use: "computers", short: "List the computers of this control plane", args: exactly(0), json: []view.Computer{},
		examples: []string{"choir computers"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			all, err := c.Computers(ctx)
			if err != nil {
				return err
			}
			return t.show(list(all), func(w io.Writer) {
				for _, info := range all {
					row(w, info.ID, oneLine(info.Name, 80), info.State, ago(info.Created), info.Desktop)
				}
			})
		},
		verbs: []verb{{
			use: "create NAME", short: "Make another computer, which is awake when this ends", args: exactly(1), json: view.Computer{},
			examples: []string{`choir computers create Second`},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				info, err := c.Create(ctx, "", args[0])
				if err != nil {
					return err
				}
				return t.show(info, func(w io.Writer) {
					printWoken(w, info)
					row(w, "id", info.ID)
					row(w, "desktop", info.Desktop)
				})
			},
		}, {
			use: "remove ID", short: "Remove a computer, whole; for a week it can be put back", args: exactly(1), json: view.Computer{},
			examples: []string{"choir computers remove abcdefgh12345678"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				return t.aboutOne(args[0], func(cid contract.CID) (view.Computer, error) { return c.Computer(cid).RemoveComputer(ctx) }, func(w io.Writer, info view.Computer) {
					row(w, "removed", info.ID, oneLine(info.Name, 80))
					row(w, "until "+ago(info.Gone), "choir computers put-back "+string(info.ID)+" brings it back as it was")
				})
			},
		}, {
			use: "removed", short: "List the computers that were removed and can be put back", args: exactly(0), json: []view.Computer{},
			examples: []string{"choir computers removed"},
			asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
				all, err := c.RemovedComputers(ctx)
				if err != nil {
					return err
				}
				return t.show(list(all), func(w io.Writer) {
					for _, info := range all {
						row(w, info.ID, oneLine(info.Name, 80), "removed "+ago(info.Removed), "gone "+ago(info.Gone))
					}
				})
			},
		}, {
			use: "put-back ID", short: "Put a computer back that was removed", args: exactly(1), json: view.Computer{},
			examples: []string{"choir computers put-back abcdefgh12345678"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				return t.aboutOne(args[0], func(cid contract.CID) (view.Computer, error) { return c.Computer(cid).PutComputerBack(ctx) }, printWoken)
			},
		}},
	}
}

// aboutOne asks something of the computer that an argument names, and shows it.
func (t *talk) aboutOne(id string, ask func(contract.CID) (view.Computer, error), text func(io.Writer, view.Computer)) error {
	cid := contract.CID(id)
	if err := cid.Validate(); err != nil {
		return usageError{err}
	}
	info, err := ask(cid)
	if err != nil {
		return err
	}
	return t.show(info, func(w io.Writer) { text(w, info) })
}
