package verbs

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/standing"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Summarise is choir summarise.
func Summarise() cli.Verb {
	var wait bool
	var timeout time.Duration
	var model, words string
	return cli.Verb{
		Use: "summarise ADDRESS|PATH", Short: "Have a page of the web or a file summarised in a document with citations", Args: cli.Exactly(1), JSON: standing.Result{},
		Long: `What the document says stands with the words of the source that it rests on, which are
looked for there word for word; another model judges whether they say so. The document is
artifacts/summaries/….md, the same one for the same address or path. choir library lists
what was quoted.`,
		Examples: []string{"choir summarise workspace/report.md", "choir summarise --wait --words \"for a lawyer, in French\" https://example.com/terms"},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&wait, "wait", false, "wait until the run has ended or asks something")
			f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long --wait waits; the run itself goes on")
			f.StringVar(&model, "model", "", "provider/`MODEL` or an alias")
			f.StringVar(&words, "words", "", "what else is wanted of it, in your `WORDS`")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			asked := view.Prompt{ID: contract.NewID(), Text: strings.TrimSpace("summarise " + args[0] + "\n" + words), Model: model, Summarise: args[0]}
			acted, err := c.Prompt(ctx, asked)
			if err != nil {
				if client.Lost(err) || ctx.Err() != nil {
					fmt.Fprintf(os.Stderr, "choir: whether it was taken is not known; if it was, this tells of it: choir runs %s\n", contract.DeriveID(asked.ID, "run"))
				}
				return err
			}
			if wait {
				return await(ctx, t, c, waited{run: acted.Run, after: acted.Sequence, timeout: timeout})
			}
			run, err := c.Run(ctx, acted.Run)
			if err != nil {
				return err
			}
			return t.Show(standing.ResultOf(run), func(w io.Writer) { terminal.Row(w, "run", acted.Run, run.Status) })
		},
	}
}

// Library is choir library.
func Library() cli.Verb {
	var limit int
	return cli.Verb{
		Use: "library [WORDS…]", Short: "List what the computer's tasks read and quoted, newest first", Args: cli.Between(0, -1), JSON: []view.Source{},
		Long:     "With WORDS it lists only sources whose address or title has each of them.",
		Examples: []string{"choir library", "choir library example.com report --json"},
		Flags:    func(f *pflag.FlagSet) { f.IntVar(&limit, "limit", 50, "how many; 0: all") },
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			got, err := cli.Every(ctx, limit, func(s view.Source) uint64 { return s.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Source, bool, error) {
				l, err := client.Call(ctx, c, rpc.LibraryList, rpc.LibraryRequest{Paged: rpc.Paged{Before: before, Limit: n}, Words: strings.Join(args, " ")})
				return l.Items, l.More, err
			})
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				for _, s := range got {
					terminal.Row(w, s.ID, terminal.Time(s.Read), fmt.Sprintf("cited %d", s.Cited), terminal.OneLine(s.Title, 80), terminal.OneLine(s.Address, 200))
				}
			})
		},
	}
}

// Source is choir source.
func Source() cli.Verb {
	var text bool
	return cli.Verb{
		Use: "source SOURCE", Short: "Show what rests on something that was read and quoted", Args: cli.Exactly(1), JSON: view.Source{},
		Long:     "Each claim is shown with the words it rests on, their line, and whether a model judged that they say so. With --text it shows the text as it was read.",
		Examples: []string{"choir source SOURCE", "choir source --text SOURCE"},
		Flags:    func(f *pflag.FlagSet) { f.BoolVar(&text, "text", false, "its text, and nothing else") },
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			s, err := client.Call(ctx, c, rpc.LibraryShow, rpc.OnSource{Source: args[0]})
			if err != nil {
				return err
			}
			return t.Show(s, func(w io.Writer) {
				if text {
					for l := range strings.SplitSeq(strings.TrimSuffix(s.Text, "\n"), "\n") {
						fmt.Fprintln(w, terminal.OneLine(l, len(l)))
					}
					return
				}
				terminal.Row(w, "address", terminal.OneLine(s.Address, 400))
				terminal.Row(w, "title", terminal.OneLine(s.Title, 200))
				terminal.Row(w, "read", terminal.Time(s.Read))
				for _, c := range s.Citations {
					terminal.Row(w, "^"+c.Label, string(c.Support), fmt.Sprintf("line %d", c.Line), terminal.OneLine(c.Claim, contract.MaxCited))
					terminal.Row(w, "", "", "", "“"+terminal.OneLine(c.Excerpt, contract.MaxCited)+"”")
					if c.Reason != "" {
						terminal.Row(w, "", "", "", terminal.OneLine(c.Reason, 400))
					}
				}
			})
		},
	}
}
