package verbs

import (
	"context"
	"errors"
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
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Prompt is choir prompt.
func Prompt() cli.Verb {
	var wait bool
	var timeout time.Duration
	var model, continues, effort string
	var plan, direct, review bool
	return cli.Verb{
		Use: "prompt TEXT…", Short: "Say what you want; the Director plans it and the Associate does it", Args: cli.Between(1, -1), JSON: standing.Result{},
		Long: `With --wait it ends with 0 when the run is done, 1 when it failed, 4 when it waits for an
answer and 5 when it still goes on. Whenever it ends before the run does it says which
one that is, and choir wait goes on waiting.

With --continue the new run is told what an ended one was asked, how it ended and which
trees of it were kept, and can go on from them. Without RUN that is the newest run.
Nothing that was granted to the earlier run is granted to the new one.

A small prompt goes to one Associate at once, and a Director takes it over only if that
does not end well. --plan has a Director plan it first, --direct sends any prompt to one
Associate at once.`,
		Examples: []string{"choir prompt \"make the desktop teal\"", "choir prompt --wait --timeout 5m --json \"fix the failing test in my-project\"", "choir prompt --continue \"now its tests as well\""},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if timeout <= 0 {
				return cli.Usage(errors.New("--timeout is a time of more than 0, such as 5m"))
			}
			if continues == newestRun && len(args) > 1 && contract.ValidID("run", args[0]) == nil {
				continues, args = args[0], args[1:] // --continue RUN TEXT, without the =
			}
			if continues == newestRun {
				runs, _, err := c.Runs(ctx, 0, 1)
				if err != nil {
					return err
				}
				if len(runs) == 0 {
					return fault.New("prompt", fault.NotFound, "Leave --continue out.", errors.New("there is no run yet to continue"))
				}
				continues = runs[0].ID
			}
			route := contract.Route("")
			switch {
			case plan && direct:
				return cli.Usage(errors.New("--plan and --direct exclude each other"))
			case plan:
				route = contract.RoutePlan
			case direct:
				route = contract.RouteDirect
			}
			asked := view.Prompt{ID: contract.NewID(), Text: strings.Join(args, " "), Model: model, Continues: continues, Route: route, Effort: contract.Effort(effort), Review: review}
			acted, err := c.Prompt(ctx, asked)
			if err != nil {
				if client.Lost(err) || ctx.Err() != nil {
					fmt.Fprintf(os.Stderr, "choir: whether it was taken is not known; if it was, this tells of it: choir runs %s\n", contract.DeriveID(asked.ID, "run"))
				}
				return err
			}
			if !wait {
				run, err := c.Run(ctx, acted.Run)
				if err != nil {
					fmt.Fprintf(os.Stderr, "choir: the prompt was taken, but how its run stands can't be told now; this tells of it: choir runs %s\n", acted.Run)
					return err
				}
				return t.Show(standing.ResultOf(run), func(w io.Writer) { terminal.Row(w, "run", acted.Run, run.Status) })
			}
			return await(ctx, t, c, waited{run: acted.Run, after: acted.Sequence, timeout: timeout})
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&wait, "wait", false, "wait until the run has ended or asks something")
			f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long --wait waits; the run itself goes on")
			f.StringVar(&model, "model", "", "provider/`MODEL` or an alias")
			f.StringVar(&effort, "effort", "", "how much the run's models think before they answer, where they can be told: `EFFORT`, of none, low, medium and high")
			f.StringVar(&continues, "continue", "", "the ended `RUN` to go on from; --continue alone is the newest")
			f.Lookup("continue").NoOptDefVal = newestRun
			f.BoolVar(&plan, "plan", false, "have a Director plan it first")
			f.BoolVar(&review, "review", false, "look at what its tasks made before it is published: choir review")
			f.BoolVar(&direct, "direct", false, "send it to one Associate at once")
		},
	}
}

// newestRun is what --continue means without a run.
const newestRun = "newest"

// maxUnknown is how many effects with an unknown outcome are shown of a run.
const maxUnknown = 20

// printUnknown says what of a run may have happened outside.
func printUnknown(w io.Writer, effects []view.Effect, more bool) {
	for _, e := range effects {
		terminal.Row(w, "outside", fmt.Sprintf("%s: whether it happened is not known: %s %s", e.ID, terminal.OneLine(e.Target, 200), terminal.OneLine(e.What, 100)))
	}
	if more {
		terminal.Row(w, "outside", "there is more: choir effects --outcome unknown")
	}
}

// Runs is choir runs.
func Runs() cli.Verb {
	var limit int
	return cli.Verb{
		Use: "runs [RUN]", Short: "List runs, or show one", Args: cli.Between(0, 1), JSON: []view.Run{},
		Long:     "With RUN, --json prints that one alone.",
		Examples: []string{"choir runs", "choir runs RUN --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if len(args) == 1 {
				run, err := c.Run(ctx, args[0])
				if err != nil {
					return err
				}
				unknown, more, err := effectsOf(ctx, c, rpc.EffectsRequest{Paged: rpc.Paged{Limit: maxUnknown}, Run: args[0], Outcome: string(contract.EffectUnknown)})
				if err != nil {
					return err
				}
				return t.Show(run, func(w io.Writer) {
					standing.Print(w, run, standing.PeopleIn(ctx, c, run))
					printUnknown(w, unknown, more)
				})
			}
			runs, err := cli.Every(ctx, limit, func(r view.Run) uint64 { return r.Sequence }, c.Runs)
			if err != nil {
				return err
			}
			return t.Show(cli.List(runs), func(w io.Writer) {
				for _, r := range runs {
					terminal.Row(w, r.ID, standing.Status(r), standing.Mark(r.Verified), terminal.Time(r.Started), terminal.OneLine(r.Prompt, 70))
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&limit, "limit", 50, "how many, newest first; 0: all")
		},
	}
}

// Run is choir run.
func Run() cli.Verb {
	v := cli.Verb{Use: "run", Short: "Cancel, pause, resume, steer or trace a run, or change its model"}
	for _, command := range []contract.RunCommand{contract.CommandCancel, contract.CommandPause, contract.CommandResume} {
		v.Verbs = append(v.Verbs, cli.Verb{
			Use: string(command) + " RUN", Short: strings.ToUpper(string(command)[:1]) + string(command)[1:] + " a run", Args: cli.Exactly(1), JSON: view.Acted{},
			Examples: []string{"choir run " + string(command) + " RUN"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				acted, err := c.Command(ctx, args[0], command)
				if err != nil {
					return err
				}
				return t.Show(acted, func(w io.Writer) { terminal.Row(w, command, args[0]) })
			},
		})
	}
	v.Verbs = append(v.Verbs,
		cli.Verb{
			Use: "steer RUN TEXT…", Short: "Say something to a run", Args: cli.Between(2, -1), JSON: view.Acted{},
			Examples: []string{"choir run steer RUN \"leave the tests as they are\""},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				acted, err := c.Steer(ctx, args[0], strings.Join(args[1:], " "))
				if err != nil {
					return err
				}
				return t.Show(acted, func(w io.Writer) { terminal.Row(w, "steered", args[0]) })
			},
		},
		cli.Verb{
			Use: "model RUN MODEL", Short: "Have a run go on with another model", Args: cli.Exactly(2), JSON: view.Acted{},
			Long:     "The run goes on with another model from its next call on, and at once where it waits for the\none before. choir models lists what there is.",
			Examples: []string{"choir run model RUN smart", "choir run model RUN ollama/qwen3"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				acted, err := c.SwitchModel(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return t.Show(acted, func(w io.Writer) { terminal.Row(w, "model", args[0], args[1]) })
			},
		},
		traceOfRun(),
	)
	return v
}

// Events is choir events.
func Events() cli.Verb {
	var o client.EventsOptions
	var text bool
	return cli.Verb{
		Use: "events", Short: "Print the log as NDJSON CloudEvents", Args: cli.Exactly(0), Raw: "a JSON object a line; with --text when, who, what and about what",
		Examples: []string{"choir events --type com.example.done", "choir events --follow --run RUN", "choir events --text --type checkpoint.created"},
		Asks: func(ctx context.Context, _ *cli.Call, c *client.Client, _ []string) error {
			if o.Limit < 0 {
				return cli.Usage(errors.New("--limit is a number of at least 0, where 0 is all"))
			}
			for what, id := range map[string]string{"run": o.Run, "task": o.Task} {
				if id == "" {
					continue
				}
				if err := contract.ValidID(what, id); err != nil {
					return cli.Usage(err)
				}
			}
			var in standing.People
			if text {
				var err error
				if in, err = standing.PeopleOf(ctx, c); err != nil {
					return err
				}
			}
			for e, err := range c.Events(ctx, o) {
				if err != nil {
					return err
				}
				line := eventLine(e, in)
				if !text {
					b, err := contract.MarshalEvent(e)
					if err != nil {
						return fault.Wrap("events", err)
					}
					line = string(terminal.SafeJSON(b))
				}
				if _, err := fmt.Println(line); err != nil {
					return err
				}
			}
			return nil
		},
		Flags: func(f *pflag.FlagSet) {
			f.Uint64Var(&o.After, "after", 0, "only events after this sequence")
			f.BoolVar(&o.Follow, "follow", false, "go on as events happen")
			f.StringSliceVar(&o.Types, "type", nil, "only events of the `TYPE`; may be several")
			f.StringVar(&o.Run, "run", "", "only the `RUN`'s")
			f.StringVar(&o.Task, "task", "", "only the `TASK`'s")
			f.StringVar(&o.Subject, "subject", "", "only those about the `THING`")
			f.IntVar(&o.Limit, "limit", 0, "at most so many; 0: all")
			f.BoolVar(&text, "text", false, "a line for people: when, who, what and about what")
		},
	}
}

// eventLine is an event on one line: its sequence, time, actor, type and subject.
func eventLine(e contract.Event, in standing.People) string {
	by := e.By()
	return terminal.OneLine(fmt.Sprintf("%7d  %s  %s  %s  %s", e.Sequence, terminal.Time(e.Time), in.Whose(by.Name(), e.User), e.Type, e.Subject), 1000)
}
