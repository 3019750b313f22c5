package verbs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Proposals is choir proposals.
func Proposals() cli.Verb {
	var all bool
	var limit int
	resolve := func(name, short string, accept bool) cli.Verb {
		return cli.Verb{
			Use: name + " DOCUMENT PROPOSAL", Short: short, Args: cli.Exactly(2), JSON: view.Resolved{},
			Examples: []string{"choir proposals " + name + " DOCUMENT PROPOSAL"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				r, err := c.Resolve(ctx, args[0], args[1], accept)
				if err != nil {
					return err
				}
				return t.Show(r, func(w io.Writer) {
					if r.Revision > 0 {
						terminal.Row(w, r.Resolution, r.ID, fmt.Sprintf("revision %d", r.Revision))
					} else {
						terminal.Row(w, r.Resolution, r.ID)
					}
				})
			},
		}
	}
	return cli.Verb{
		Use: "proposals DOCUMENT", Short: "List what is proposed for a document, newest first", Args: cli.Exactly(1), JSON: []view.Proposal{},
		Long:     "The document of a run stands in what choir runs RUN --json and choir wait --json say.",
		Examples: []string{"choir proposals DOCUMENT", "choir proposals DOCUMENT --all --limit 0 --json"},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "accepted and dismissed ones too")
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			got, err := cli.Every(ctx, limit, func(p view.Proposal) uint64 { return p.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Proposal, bool, error) {
				return c.Proposals(ctx, args[0], all, before, n)
			})
			if err != nil {
				return err
			}
			return t.Show(got, func(w io.Writer) {
				for _, p := range got {
					terminal.Row(w, p.ID, p.Status, terminal.Time(p.Time), terminal.OneLine(p.Author, 60))
				}
			})
		},
		Verbs: []cli.Verb{
			{
				Use: "show DOCUMENT PROPOSAL", Short: "Show what a proposal would change", Args: cli.Exactly(2), JSON: view.Proposal{},
				Examples: []string{"choir proposals show DOCUMENT PROPOSAL"},
				Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
					p, err := c.Proposal(ctx, args[0], args[1])
					if err != nil {
						return err
					}
					return t.Show(p, func(w io.Writer) {
						terminal.Row(w, "proposal", p.ID, string(p.Status), "by "+terminal.OneLine(p.Author, 60))
						if p.Overlaps > 0 {
							terminal.Row(w, "overlaps", fmt.Sprintf("in %d places it takes the place of what was written since", p.Overlaps))
						}
						terminal.Diff(w, p.Diff)
						if p.Truncated {
							fmt.Fprintln(w, "… cut; --json has the whole text")
						}
					})
				},
			},
			resolve("accept", "Make what is proposed the document's next revision", true),
			resolve("dismiss", "Leave the document as it is", false),
		},
	}
}
