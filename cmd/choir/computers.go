package main

import (
	"context"
	"io"

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
		}},
	}
}
