package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// maxListed is how many approvals are looked through for one to answer; no more
// than 20 can be open.
const maxListed = 100

func approvalsVerb() verb {
	var all bool
	var limit int
	return verb{
		use: "approvals", short: "List what waits for your answer", args: exactly(0), json: []view.Approval{},
		examples: []string{"choir approvals", "choir approvals --all --limit 0"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			got, err := every(ctx, limit, func(a view.Approval) uint64 { return a.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Approval, bool, error) {
				return c.Approvals(ctx, all, before, n)
			})
			if err != nil {
				return err
			}
			return t.show(list(got), func(w io.Writer) {
				for _, a := range got {
					printApproval(w, a)
				}
			})
		},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "answered ones too")
			f.IntVar(&limit, "limit", 50, "how many, newest first; 0: all")
		},
	}
}

func printApproval(w io.Writer, a view.Approval) {
	row(w, "approval", a.ID)
	row(w, "asks for", "a connection to "+oneLine(act(a).Target(), 300))
	row(w, "for the run", fmt.Sprintf("%s (%s)", a.Run, oneLine(a.Prompt, 80)))
	row(w, "by its task", a.Task)
	if a.Claim != "" {
		row(w, "agent's claim", "“"+oneLine(a.Claim, contract.MaxClaim)+"”")
	}
	if a.Answer == "" {
		row(w, "denied at", ago(a.Deadline))
	} else {
		row(w, "answer", fmt.Sprintf("%s, by %s%s", a.Answer, a.By, suffix(a.Reason)))
	}
	row(w, "")
}

func act(a view.Approval) contract.Act {
	return contract.Act{Kind: a.Kind, Run: a.Run, Host: a.Host, Port: a.Port}
}

func approveVerb() verb {
	var run, deny bool
	return verb{
		use: "approve ID", short: "Allow what an approval asks for, once; or for its run; or deny it", args: exactly(1), json: view.Acted{},
		examples: []string{"choir approve ID", "choir approve ID --run", "choir approve ID --deny"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			answer := contract.ApprovalOnce
			switch {
			case run && deny:
				return usageError{errors.New("give --run or --deny, not both")}
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
				// What is allowed is what is shown here, not what the service calls it.
				digest, err := act(a).Digest()
				if err != nil {
					return fault.Wrap("approve", err)
				}
				acted, err := c.Decide(ctx, a.ID, view.Decision{Digest: digest, Answer: answer})
				if err != nil {
					return err
				}
				return t.show(acted, func(w io.Writer) { row(w, string(answer), act(a).Target(), "run "+a.Run) })
			}
			return fault.New("approve", fault.NotFound, "List what waits with: choir approvals", fmt.Errorf("no approval %q waits", oneLine(args[0], 60)))
		},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&run, "run", false, "allow it to every task of the run")
			f.BoolVar(&deny, "deny", false, "deny it")
		},
	}
}
