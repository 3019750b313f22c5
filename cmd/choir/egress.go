package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/client"
)

func egressCmd() *cobra.Command {
	var run string
	cmd := verb("egress", "Which hosts boxes reached, and how many bytes passed", exactly(0),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, _ []string) error {
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
		})
	cmd.Flags().StringVar(&run, "run", "", "only this run's boxes")
	return cmd
}
