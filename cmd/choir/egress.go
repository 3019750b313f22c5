package main

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

func egressVerb() verb {
	var run string
	return verb{
		use: "egress", short: "Which hosts boxes reached, and how many bytes passed", args: exactly(0), json: []view.Traffic{},
		examples: []string{"choir egress", "choir egress --run RUN --json"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			got, err := c.Egress(ctx, run)
			if err != nil {
				return err
			}
			return t.show(list(got), func(w io.Writer) {
				row(w, "host", "tunnels", "sent", "received")
				for _, h := range got {
					row(w, oneLine(h.ID, 300), h.Tunnels, h.Sent, h.Received)
				}
			})
		},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&run, "run", "", "only this run's boxes")
		},
	}
}
