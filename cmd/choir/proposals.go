package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

func proposalsVerb() verb {
	var all bool
	var limit int
	resolve := func(name, short string, accept bool) verb {
		return verb{
			use: name + " DOCUMENT ID", short: short, args: exactly(2), json: view.Resolved{},
			examples: []string{"choir proposals " + name + " DOCUMENT ID"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				r, err := c.Resolve(ctx, args[0], args[1], accept)
				if err != nil {
					return err
				}
				return t.show(r, func(w io.Writer) {
					if r.Revision > 0 {
						row(w, r.Resolution, r.ID, fmt.Sprintf("revision %d", r.Revision))
					} else {
						row(w, r.Resolution, r.ID)
					}
				})
			},
		}
	}
	return verb{
		use: "proposals DOCUMENT", short: "List what is proposed for a document, newest first", args: exactly(1), json: []view.Proposal{},
		long:     "The document of a run stands in what choir runs RUN --json and choir wait --json say.",
		examples: []string{"choir proposals DOCUMENT", "choir proposals DOCUMENT --all --limit 0 --json"},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "accepted and dismissed ones too")
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			got, err := every(ctx, limit, func(p view.Proposal) uint64 { return p.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Proposal, bool, error) {
				return c.Proposals(ctx, args[0], all, before, n)
			})
			if err != nil {
				return err
			}
			return t.show(got, func(w io.Writer) {
				for _, p := range got {
					row(w, p.ID, p.Status, ago(p.Time), oneLine(p.Author, 60))
				}
			})
		},
		verbs: []verb{
			{
				use: "show DOCUMENT ID", short: "Show what a proposal would change", args: exactly(2), json: view.Proposal{},
				examples: []string{"choir proposals show DOCUMENT ID"},
				asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
					p, err := c.Proposal(ctx, args[0], args[1])
					if err != nil {
						return err
					}
					return t.show(p, func(w io.Writer) {
						row(w, "proposal", p.ID, string(p.Status), "by "+oneLine(p.Author, 60))
						if p.Overlaps > 0 {
							row(w, "overlaps", fmt.Sprintf("in %d places it takes the place of what was written since", p.Overlaps))
						}
						fmt.Fprint(w, plain(p.Diff))
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
