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
	"choir.dev/choiros/internal/view"
)

// errWaited is the cause when waiting for a run took too long.
var errWaited = errors.New("the time to wait is over")

// Wait is choir wait.
func Wait() cli.Verb {
	var timeout time.Duration
	return cli.Verb{
		Use: "wait RUN", Short: "Wait until a run has ended or asks something", Args: cli.Exactly(1), JSON: standing.Result{},
		Long: `It ends with 0 when the run is done, 1 when it failed, 4 when it waits for an answer and 5
when it still goes on.`,
		Examples: []string{"choir wait RUN", "choir wait RUN --timeout 1h --json"},
		Flags: func(f *pflag.FlagSet) {
			f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long to wait; the run itself goes on")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if timeout <= 0 {
				return cli.Usage(errors.New("--timeout is a time of more than 0, such as 5m"))
			}
			if err := contract.ValidID("run", args[0]); err != nil {
				return cli.Usage(err)
			}
			return await(ctx, t, c, waited{run: args[0], timeout: timeout})
		},
	}
}

// waited is a run that is waited for: behind which event what happens in it is said, 0 for now,
// and for how long.
type waited struct {
	run     string
	after   uint64
	timeout time.Duration
}

// await waits for a run and shows it. If it returns before the run has ended, it says which
// run that is and how to continue waiting.
func await(ctx context.Context, t *cli.Call, c *client.Client, w waited) error {
	id := w.run
	wctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errWaited)
	defer cancel()
	stop := func() {}
	if !t.JSON {
		stop = standing.Follow(wctx, c, id, w.after)
	}
	run, err := c.Wait(wctx, id)
	stop()
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		return err
	}
	if errors.Is(err, errWaited) { // how it stands now, not when it was last asked
		if now, err := c.Run(ctx, id); err == nil {
			run = now
		}
	}
	run.ID = id // set in case no answer came yet
	if err == nil || t.JSON || errors.Is(err, errWaited) && run.Status != "" {
		if err := t.Show(standing.ResultOf(run), func(out io.Writer) { standing.Print(out, run, standing.PeopleIn(ctx, c, run)) }); err != nil {
			return err
		}
	}
	switch {
	case err == nil && run.Status == contract.RunDone:
		return nil
	case err == nil && run.Status == contract.RunWaiting:
		for _, q := range run.Questions {
			fmt.Fprintf(os.Stderr, "choir: it asks: %s\nchoir: answer with: choir answer %s --question %s TEXT\n", terminal.OneLine(q.Text, 1000), run.ID, terminal.OneLine(q.ID, 128))
		}
		for _, a := range run.Approvals {
			fmt.Fprintf(os.Stderr, "choir: it asks for %s\nchoir: answer with: choir approve %s\n", standing.Wanted(a), a.ID)
		}
		for _, l := range run.Reviews {
			fmt.Fprintf(os.Stderr, "choir: %d changed paths wait until you have looked at them: choir review %s --task %s\n", l.Paths, l.Run, l.Task)
		}
		return cli.ExitNeedsInput
	case err == nil:
		return cli.ExitFailed
	case fault.Is(err, fault.Unreachable):
		fmt.Fprintf(os.Stderr, "choir: the run %s is in the log; once choir up runs, go on with: choir wait %s\n", id, id)
		return err
	}
	switch {
	case run.Paused != nil:
		fmt.Fprintf(os.Stderr, "choir: the run %s is paused; let it go on with: choir run resume %s\n", id, id)
	default:
		fmt.Fprintf(os.Stderr, "choir: the run %s goes on; wait for it with: choir wait %s\n", id, id)
	}
	if errors.Is(err, errWaited) {
		return cli.ExitGoesOn
	}
	return err
}

// Answer is choir answer.
func Answer() cli.Verb {
	var question string
	return cli.Verb{
		Use: "answer RUN TEXT…", Short: "Answer what a run asks", Args: cli.Between(2, -1), JSON: view.Acted{},
		Examples: []string{`choir answer RUN "the second one"`, "choir answer RUN --question QUESTION yes"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&question, "question", "", "which `QUESTION`; needed where there are several")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			id := question
			if id == "" {
				run, err := c.Run(ctx, args[0])
				if err != nil {
					return err
				}
				switch len(run.Questions) {
				case 0:
					return fault.New("answer", fault.Conflict, "See what it does with: choir runs "+run.ID, errors.New("the run asks nothing"))
				case 1:
					id = run.Questions[0].ID
				default:
					return cli.Usage(fmt.Errorf("the run asks %d things; say which with --question: choir runs %s lists them", len(run.Questions), run.ID))
				}
			}
			acted, err := c.Answer(ctx, args[0], view.Answer{Question: id, Answer: strings.Join(args[1:], " ")})
			if err != nil {
				return err
			}
			return t.Show(acted, func(w io.Writer) { terminal.Row(w, "answered", args[0]) })
		},
	}
}
