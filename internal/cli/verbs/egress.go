package verbs

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Egress is choir egress.
func Egress() cli.Verb {
	var run string
	return cli.Verb{
		Use: "egress", Short: "Which hosts boxes reached, and how many bytes passed", Args: cli.Exactly(0), JSON: []view.Traffic{},
		Examples: []string{"choir egress", "choir egress --run RUN --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			got, err := c.Egress(ctx, run)
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				terminal.Row(w, "host", "tunnels", "sent", "received")
				for _, h := range got {
					terminal.Row(w, terminal.OneLine(h.ID, 300), h.Tunnels, h.Sent, h.Received)
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&run, "run", "", "only boxes of the `RUN`")
		},
	}
}
