package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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

// maxListed is how many approvals are searched for the one to answer; no more than 20 can
// be open.
const maxListed = 100

// maxWidth is how many bytes of a body are on one line.
const maxWidth = 1000

// Approvals is choir approvals.
func Approvals() cli.Verb {
	var all bool
	var limit int
	return cli.Verb{
		Use: "approvals", Short: "List what waits for your answer", Args: cli.Exactly(0), JSON: []view.Approval{},
		Examples: []string{"choir approvals", "choir approvals --all --limit 0"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			got, err := cli.Every(ctx, limit, func(a view.Approval) uint64 { return a.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Approval, bool, error) {
				return c.Approvals(ctx, all, before, n)
			})
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				for _, a := range got {
					printApproval(w, a)
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "answered ones too")
			f.IntVar(&limit, "limit", 50, "how many, newest first; 0: all")
		},
		Verbs: []cli.Verb{showApproval()},
	}
}

func showApproval() cli.Verb {
	return cli.Verb{
		Use: "show APPROVAL", Short: "Show what an approval asks for, whole", Args: cli.Exactly(1), JSON: view.Approval{},
		Examples: []string{"choir approvals show APPROVAL"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			a, err := client.Call(ctx, c, rpc.ApprovalShow, rpc.OnApproval{Approval: args[0]})
			if err != nil {
				return err
			}
			return t.Show(a, func(w io.Writer) { printApproval(w, a) })
		},
	}
}

func printApproval(w io.Writer, a view.Approval) {
	terminal.Row(w, "approval", a.ID)
	terminal.Row(w, "asks for", standing.Wanted(a))
	printRequest(w, a)
	terminal.Row(w, "for the run", fmt.Sprintf("%s (%s)", a.Run, terminal.OneLine(a.Prompt, 80)))
	terminal.Row(w, "by its task", a.Task)
	if a.Claim != "" {
		terminal.Row(w, "agent's claim", "“"+terminal.OneLine(a.Claim, contract.MaxClaim)+"”")
	}
	if a.Answer == "" {
		terminal.Row(w, "denied at", terminal.Time(a.Deadline))
	} else {
		terminal.Row(w, "answer", fmt.Sprintf("%s, by %s%s", a.Answer, a.By, standing.Suffix(a.Reason)))
	}
	terminal.Row(w, "")
}

// printRequest says what a request sends, with as much of its body as is there.
func printRequest(w io.Writer, a view.Approval) {
	r := a.Request
	if r == nil {
		return
	}
	for _, h := range r.Headers {
		terminal.Row(w, "header", terminal.OneLine(h, 1200))
	}
	if a.Again != "" {
		terminal.Row(w, "once more", fmt.Sprintf("it repeats the effect %s, which is %s%s", a.Again, r.Before, standing.Suffix(mayBeDone(r.Before))))
	}
	body, more := a.Body, ""
	if body == "" {
		if body = r.Body; r.Cut {
			more = ", of which this is the beginning: choir approvals show " + a.ID
		}
	}
	if r.Size == 0 {
		terminal.Row(w, "body", "none")
		return
	}
	terminal.Row(w, "body", fmt.Sprintf("%d bytes, SHA-256 %s%s", r.Size, r.SHA256, more))
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		for begun := false; !begun || line != ""; begun = true { // a long line is broken, for none of it may be left out
			part := contract.Clip(line, maxWidth)
			terminal.Row(w, "", "> "+terminal.OneLine(part, maxWidth))
			line = line[len(part):]
		}
	}
}

func mayBeDone(o contract.EffectOutcome) string {
	if o == contract.EffectUnknown {
		return "it may have been done already"
	}
	return ""
}

// Approve is choir approve.
func Approve() cli.Verb {
	var run, deny bool
	return cli.Verb{
		Use: "approve APPROVAL", Short: "Allow what an approval asks for, once; or for its run; or deny it", Args: cli.Exactly(1), JSON: view.Acted{},
		Examples: []string{"choir approve APPROVAL", "choir approve APPROVAL --run", "choir approve APPROVAL --deny"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			answer := contract.ApprovalOnce
			switch {
			case run && deny:
				return cli.Usage(errors.New("give --run or --deny, not both"))
			case run:
				answer = contract.ApprovalRun
			case deny:
				answer = contract.ApprovalDeny
			}
			open, _, err := c.Approvals(ctx, false, 0, maxListed)
			if err != nil {
				return err
			}
			for _, a := range open {
				if a.ID != args[0] {
					continue
				}
				// The answer allows what is shown here, computed from it, and not a digest
				// that the service sends.
				digest, err := a.Act().Digest()
				if err != nil {
					return fault.Wrap("approve", err)
				}
				acted, err := c.Decide(ctx, a.ID, view.Decision{Digest: digest, Answer: answer})
				if err != nil {
					return err
				}
				return t.Show(acted, func(w io.Writer) { terminal.Row(w, string(answer), a.Act().Target(), "run "+a.Run) })
			}
			return fault.New("approve", fault.NotFound, "List what waits with: choir approvals", fmt.Errorf("no approval %q waits", terminal.OneLine(args[0], 60)))
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&run, "run", false, "allow it to every task of the run")
			f.BoolVar(&deny, "deny", false, "deny it")
		},
	}
}
