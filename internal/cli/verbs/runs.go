package verbs

import (
	"cmp"
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
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// promptResult is the stable shape of `choir prompt --json` and `choir wait --json`.
type promptResult struct {
	Run        string       `json:"run"`
	Status     string       `json:"status"`
	Verified   string       `json:"verified"` // pass, fail or unknown
	Summary    string       `json:"summary"`
	Document   string       `json:"document"`
	Tasks      []promptTask `json:"tasks"`
	Checkpoint string       `json:"checkpoint"`
	CostUSD    float64      `json:"cost_usd"`
	// Questions and Approvals are those that it waits for.
	Questions []contract.Question `json:"questions"`
	Approvals []view.Approval     `json:"approvals"`
	// Reviews are what waits until its user has looked at it.
	Reviews []view.Review `json:"reviews"`
}

type promptTask struct {
	ID           string `json:"id"`
	Kind         string `json:"kind"`
	Goal         string `json:"goal"`
	Status       string `json:"status"`
	Verification string `json:"verification"`
	// Tests is how many tests ran with the base's tools and configuration of the checks,
	// Said what the task changed of those, and Reason why it is not verified.
	Tests  int      `json:"tests"`
	Said   []string `json:"said"`
	Reason string   `json:"reason"`
}

func resultOf(r view.Run) promptResult {
	out := promptResult{Run: r.ID, Status: cmp.Or(string(r.Status), "unknown"), Verified: verdict(r.Verified), Summary: r.Summary, Document: r.Document,
		Checkpoint: r.Checkpoint, CostUSD: r.Usage.CostUSD, Tasks: []promptTask{}, Questions: cli.List(r.Questions), Approvals: cli.List(r.Approvals), Reviews: cli.List(r.Reviews)}
	for _, t := range r.Tasks {
		p := promptTask{ID: t.ID, Kind: string(t.Kind), Goal: t.Goal, Status: t.Status, Verification: string(t.Verification), Said: []string{}}
		if t.Result != nil {
			v := t.Result.Verification
			p.Tests, p.Said, p.Reason = v.Tests, append(p.Said, v.Said...), v.Reason
		}
		out.Tasks = append(out.Tasks, p)
	}
	return out
}

// verdict is a run's verification; one that has not been judged is unknown.
func verdict(v contract.VerificationStatus) string {
	if v == "" {
		v = contract.VerificationUnknown
	}
	return string(v)
}

// Prompt is choir prompt.
func Prompt() cli.Verb {
	var wait bool
	var timeout time.Duration
	var model, continues, effort string
	var plan, direct, review bool
	return cli.Verb{
		Use: "prompt TEXT…", Short: "Say what you want; the Director plans it and the Associate does it", Args: cli.Between(1, -1), JSON: promptResult{},
		Long: `With --wait it ends with 0 when the run is done, 1 when it failed, 4 when it waits for an
answer and 5 when it still goes on. Whenever it ends before the run does it says which
one that is, and choir wait goes on waiting.

With --continue the new run is told what an ended one was asked, how it ended and which
trees of it were kept, and can go on from them. Without RUN that is the newest run.
Nothing that was granted to the earlier run is granted to the new one.

A small prompt goes to one Associate at once, and a Director takes it over only if that
does not end well. --plan has a Director plan it first, --direct sends any prompt to one
Associate at once.`,
		Examples: []string{"choir prompt \"make the desktop teal\"", "choir prompt --wait --timeout 5m --json \"fix the failing test in my-project\"", "choir prompt --continue \"now with a longer budget\""},
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
					return err
				}
				return t.Show(resultOf(run), func(w io.Writer) { terminal.Row(w, "run", acted.Run, run.Status) })
			}
			return await(ctx, t, c, acted.Run, timeout)
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

func printRun(w io.Writer, r view.Run) {
	terminal.Row(w, "run", r.ID)
	terminal.Row(w, "prompt", terminal.OneLine(r.Prompt, 100))
	terminal.Row(w, "status", string(r.Status)+suffix(r.Reason))
	terminal.Row(w, "model", r.Provider+"/"+strings.TrimPrefix(r.Model, r.Provider+"/"))
	terminal.Row(w, "verified", mark(r.Verified))
	terminal.Row(w, "checkpoint", r.Checkpoint)
	if r.Continues != "" {
		terminal.Row(w, "continues", r.Continues)
	}
	if r.Direct != "" {
		terminal.Row(w, "direct", "to one Associate at once: "+terminal.OneLine(r.Direct, 200))
	}
	terminal.Row(w, "cost", fmt.Sprintf("$%.4f, %d + %d tokens", r.Usage.CostUSD, r.Usage.TokensIn, r.Usage.TokensOut))
	for _, t := range r.Tasks {
		terminal.Row(w, "task", fmt.Sprintf("%s %s %s: %s", mark(t.Verification), t.Status, t.Kind, terminal.OneLine(t.Goal, 80)))
		if t.Result != nil {
			for _, o := range t.Result.Overlaps {
				terminal.Row(w, "overlap", fmt.Sprintf("%d paths that task %s changed, too: %s", len(o.Paths)+o.More, o.Task, terminal.OneLine(strings.Join(o.Paths, ", "), 200)))
			}
		}
		if t.Result != nil {
			for _, q := range t.Result.Requests {
				terminal.Row(w, "request", string(q.Type)+": "+terminal.OneLine(q.Text, 300))
			}
		}
		if t.Result != nil && t.Result.Reviewed != nil {
			terminal.Row(w, "reviewed", decided(t.Result.Reviewed.Decision, t.Result.Reviewed.Only, t.Result.Reviewed.By))
		}
		if t.Result != nil && t.Result.Kept != nil {
			terminal.Row(w, "kept", fmt.Sprintf("%s, %d paths: what it wrote and was not published", t.Result.Kept.Commit, t.Result.Kept.Paths))
		}
	}
	for _, q := range r.Questions {
		terminal.Row(w, "question", fmt.Sprintf("%s: %s %v", q.ID, terminal.OneLine(q.Text, 200), q.Choices))
	}
	for _, a := range r.Approvals {
		terminal.Row(w, "approval", a.ID+": "+wanted(a))
	}
	for _, l := range r.Reviews {
		terminal.Row(w, "review", fmt.Sprintf("%d paths wait until you have looked at them: choir review %s --task %s", l.Paths, l.Run, l.Task))
	}
	if r.StoodMS > 0 {
		terminal.Row(w, "stood still", (time.Duration(r.StoodMS) * time.Millisecond).Round(time.Second))
	}
	if r.Error != "" && !strings.HasPrefix(r.Summary, r.Error) {
		terminal.Row(w, "error", terminal.OneLine(r.Error, 300))
	}
	terminal.Text(w, "\n"+r.Summary+"\n")
}

func suffix(s string) string {
	if s == "" {
		return ""
	}
	return " (" + terminal.OneLine(s, 120) + ")"
}

func mark(v contract.VerificationStatus) string {
	switch v {
	case contract.VerificationPass:
		return "✓"
	case contract.VerificationFail:
		return "✕"
	}
	return "?"
}

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
				return t.Show(run, func(w io.Writer) { printRun(w, run); printUnknown(w, unknown, more) })
			}
			runs, err := cli.Every(ctx, limit, func(r view.Run) uint64 { return r.Sequence }, c.Runs)
			if err != nil {
				return err
			}
			return t.Show(cli.List(runs), func(w io.Writer) {
				for _, r := range runs {
					terminal.Row(w, r.ID, r.Status, mark(r.Verified), terminal.Time(r.Started), terminal.OneLine(r.Prompt, 70))
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
			var in people
			if text {
				var err error
				if in, err = peopleOf(ctx, c); err != nil {
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
func eventLine(e contract.Event, in people) string {
	by := e.By()
	return terminal.OneLine(fmt.Sprintf("%7d  %s  %s  %s  %s", e.Sequence, terminal.Time(e.Time), in.whose(by.Name(), e.User), e.Type, e.Subject), 1000)
}

// people are the names of a computer's members, by account.
type people map[string]string

// peopleOf requests the computer's members. A caller who may not list them sees accounts
// instead of names.
func peopleOf(ctx context.Context, c *client.Client) (people, error) {
	members, err := client.Call(ctx, c, rpc.MemberList, rpc.Of{})
	if fault.Is(err, fault.Denied) {
		return nil, nil
	}
	in := people{}
	for _, m := range members.Items {
		in[m.ID] = terminal.OneLine(m.Name, 60)
	}
	return in, err
}

// whose names an actor, and the account that it acted for if that is another's. A person
// who is not a member, or no longer one, is named by their account.
func (in people) whose(actor contract.ActorName, user string) string {
	name := func(account string) string { return cmp.Or(in[account], account) }
	if actor.Kind() == contract.KindPerson {
		kind, account, _ := strings.Cut(string(actor), ":")
		return kind + ":" + name(account) // a person may have chosen the name "system"
	}
	if user != "" {
		return string(actor) + " for " + name(user)
	}
	return string(actor)
}
