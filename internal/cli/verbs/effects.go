package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

// Effects is choir effects.
func Effects() cli.Verb {
	var run, outcome string
	var limit int
	return cli.Verb{
		Use: "effects", Short: "List what tasks changed outside, or may have, newest first", Args: cli.Exactly(0), JSON: []view.Effect{},
		Long: `No checkpoint undoes what was changed outside. One whose outcome is unknown may have
happened: nothing makes it again by itself. Look, and say what you found with
choir effects resolve.`,
		Examples: []string{"choir effects", "choir effects --outcome unknown", "choir effects --run RUN --json"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&run, "run", "", "only the `RUN`'s")
			f.StringVar(&outcome, "outcome", "", "only those that came to this `OUTCOME`: open, done, failed or unknown")
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			got, err := cli.Every(ctx, limit, func(e view.Effect) uint64 { return e.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Effect, bool, error) {
				return effectsOf(ctx, c, rpc.EffectsRequest{Paged: rpc.Paged{Before: before, Limit: n}, Run: run, Outcome: outcome})
			})
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				for _, e := range got {
					terminal.Row(w, e.ID, e.Outcome, terminal.Time(e.Time), terminal.OneLine(e.Target, 200), terminal.OneLine(e.What, 200))
				}
			})
		},
		Verbs: []cli.Verb{showEffect(), resolveEffect(), compensateEffect()},
	}
}

func effectsOf(ctx context.Context, c *client.Client, in rpc.EffectsRequest) ([]view.Effect, bool, error) {
	l, err := client.Call(ctx, c, rpc.EffectList, in)
	return l.Items, l.More, err
}

func printEffect(w io.Writer, e view.Effect) {
	terminal.Row(w, "effect", e.ID)
	terminal.Row(w, "outcome", e.Outcome)
	terminal.Row(w, "target", terminal.OneLine(e.Target, 2400))
	terminal.Row(w, "time", terminal.Time(e.Time))
	terminal.Row(w, "of the run", e.Run)
	terminal.Row(w, "by its task", fmt.Sprintf("%s, attempt %d, call %s", e.Task, e.Attempt, terminal.OneLine(e.Call, 128)))
	terminal.Row(w, "arguments", terminal.OneLine(e.Arguments, 4096))
	terminal.Row(w, "", string(e.Args))
	if e.Key != "" {
		terminal.Row(w, "idempotency key", terminal.OneLine(e.Key, 256))
	}
	if e.Approval != "" {
		terminal.Row(w, "allowed by", "approval "+e.Approval)
	}
	if e.Again != "" {
		terminal.Row(w, "once more", e.Again)
	}
	if e.Status != 0 {
		terminal.Row(w, "status", e.Status)
	}
	terminal.Row(w, "answer", terminal.OneLine(e.Answered, 4096))
	if e.Found != "" {
		terminal.Row(w, "found", fmt.Sprintf("%s, by %s%s", e.Found, e.By, standing.Suffix(e.Note)))
	}
	if e.Outcome == string(contract.EffectUnknown) {
		terminal.Row(w, "to resolve", "look whether it happened, then: choir effects resolve "+e.ID+" --done, or --not-done")
	}
	if e.Outcome == string(contract.EffectDone) {
		terminal.Row(w, "to undo it", "choir effects compensate "+e.ID)
	}
}

func showEffect() cli.Verb {
	return cli.Verb{
		Use: "show EFFECT", Short: "Show an effect outside with its arguments and what was answered", Args: cli.Exactly(1), JSON: view.Effect{},
		Examples: []string{"choir effects show EFFECT"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			e, err := client.Call(ctx, c, rpc.EffectShow, rpc.OnEffect{Effect: args[0]})
			if err != nil {
				return err
			}
			return t.Show(e, func(w io.Writer) { printEffect(w, e) })
		},
	}
}

func resolveEffect() cli.Verb {
	var done, notDone bool
	var note string
	return cli.Verb{
		Use: "resolve EFFECT", Short: "Say what you found of an effect whose outcome is unknown", Args: cli.Exactly(1), JSON: view.Effect{},
		Long:     "It is said once. What did not happen may be made again by its run, when its model says so by naming the effect.",
		Examples: []string{"choir effects resolve EFFECT --done", "choir effects resolve EFFECT --not-done --note \"there is no such order\""},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&done, "done", false, "it happened")
			f.BoolVar(&notDone, "not-done", false, "it did not happen")
			f.StringVar(&note, "note", "", "what else you found, in a line of `TEXT`")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			found := contract.FoundDone
			switch {
			case done == notDone:
				return cli.Usage(errors.New("give --done or --not-done"))
			case notDone:
				found = contract.FoundNotDone
			}
			e, err := client.Call(ctx, c, rpc.EffectResolve, rpc.ResolveEffectRequest{OnEffect: rpc.OnEffect{Effect: args[0]}, Body: view.ResolveEffect{Found: found, Note: note}})
			if err != nil {
				return err
			}
			return t.Show(e, func(w io.Writer) { printEffect(w, e) })
		},
	}
}

func compensateEffect() cli.Verb {
	return cli.Verb{
		Use: "compensate EFFECT [WORDS…]", Short: "Have a run undo outside what an ended run did there", Args: cli.Between(1, -1), JSON: standing.Result{},
		Long: `It is a prompt that continues the effect's run. The host tells the new run's Director of the
effect, as data: its target, its arguments and what the service answered. Whether it can
be undone is up to the service; the new run may use what a run of its own may.`,
		Examples: []string{"choir effects compensate EFFECT", "choir effects compensate EFFECT \"cancel the order, keep the account\""},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			asked := view.CompensateEffect{ID: contract.NewID(), Words: strings.Join(args[1:], " ")}
			acted, err := client.Call(ctx, c, rpc.EffectCompensate, rpc.CompensateEffectRequest{OnEffect: rpc.OnEffect{Effect: args[0]}, Body: asked})
			if err != nil {
				if client.Lost(err) || ctx.Err() != nil {
					fmt.Fprintf(os.Stderr, "choir: whether it was taken is not known; if it was, this tells of it: choir runs %s\n", contract.DeriveID(asked.ID, "run"))
				}
				return err
			}
			run, err := c.Run(ctx, acted.Run)
			if err != nil {
				return err
			}
			return t.Show(standing.ResultOf(run), func(w io.Writer) { terminal.Row(w, "run", acted.Run, run.Status) })
		},
	}
}
