package verbs

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/standing"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Remember is choir remember.
func Remember() cli.Verb {
	var from []string
	return cli.Verb{
		Use: "remember TEXT…", Short: "Have the computer keep something that all later runs are told", Args: cli.Between(1, -1), JSON: view.Fact{},
		Long:     "It is told to models as your own words, in each request, and survives however long a run becomes. It grants no tool, network, budget or check.",
		Examples: []string{"choir remember \"Always indent with tabs.\"", "choir remember --from FACT \"In Makefiles, too.\""},
		Flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&from, "from", nil, "`FACT` that it follows from, and is forgotten with; may be given more than once")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			f, err := client.Call(ctx, c, rpc.MemoryRemember, rpc.RememberRequest{Body: view.Remember{Text: strings.Join(args, " "), From: from}})
			if err != nil {
				return err
			}
			return t.Show(f, func(w io.Writer) { terminal.Row(w, "kept", f.ID, terminal.OneLine(f.Text, contract.MaxFact)) })
		},
	}
}

// Memory is choir memory.
func Memory() cli.Verb {
	var all bool
	var limit int
	return cli.Verb{
		Use: "memory", Short: "List what the computer was told to keep, newest first", Args: cli.Exactly(0), JSON: []view.Fact{},
		Examples: []string{"choir memory", "choir memory --all --limit 0 --json"},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "what was forgotten, too")
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			got, err := cli.Every(ctx, limit, func(f view.Fact) uint64 { return f.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Fact, bool, error) {
				l, err := client.Call(ctx, c, rpc.MemoryList, rpc.MemoryRequest{Paged: rpc.Paged{Before: before, Limit: n}, All: all})
				return l.Items, l.More, err
			})
			if err != nil {
				return err
			}
			in, err := standing.PeopleOf(ctx, c)
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				for _, f := range got {
					terminal.Row(w, f.ID, keptOrNot(f), terminal.Time(f.Time), terminal.OneLine(in.Whose(f.Actor, f.User), 100), cameFrom(f), terminal.OneLine(f.Text, contract.MaxFact))
				}
			})
		},
	}
}

func keptOrNot(f view.Fact) string {
	if f.Kept {
		return "kept"
	}
	return "forgotten"
}

// cameFrom says which event and run a fact came from.
func cameFrom(f view.Fact) string {
	var out []string
	if f.Run != "" {
		out = append(out, "run "+f.Run)
	}
	if len(f.From) > 0 {
		out = append(out, "from "+strings.Join(f.From, " "))
	}
	return terminal.OneLine(strings.Join(out, ", "), 300)
}

// Forget is choir forget.
func Forget() cli.Verb {
	return cli.Verb{
		Use: "forget FACT", Short: "Have a fact forgotten, and what follows from it", Args: cli.Exactly(1), JSON: view.Forgotten{},
		Long:     "Of an event, such as the prompt of a run, everything is forgotten that came from it. choir undo keeps it again. What was said stays in the log.",
		Examples: []string{"choir forget FACT"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			gone, err := client.Call(ctx, c, rpc.MemoryForget, rpc.OnFact{Fact: args[0]})
			if err != nil {
				return err
			}
			return t.Show(gone, func(w io.Writer) {
				for _, f := range gone.Facts {
					terminal.Row(w, "forgotten", f.ID, terminal.OneLine(f.Text, contract.MaxFact))
				}
			})
		},
	}
}
