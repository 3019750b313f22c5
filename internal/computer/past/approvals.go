package past

import (
	"context"
	"net"
	"strconv"

	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Approvals answers rpc.ApprovalList.
func (c *Past) Approvals(ctx context.Context, all bool, before uint64, limit int) ([]view.Approval, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	list, err := c.approvals(ctx, state.ApprovalFilter{Open: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	more := len(list) > limit
	return list[:min(len(list), limit)], more, nil
}

// approvals lists the approvals that match a filter, as of the events that are projected.
func (c *Past) approvals(ctx context.Context, f state.ApprovalFilter) ([]view.Approval, error) {
	rows, err := c.state.Approvals(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]view.Approval, 0, len(rows))
	for _, r := range rows {
		out = append(out, view.Approval{
			ID: r.ID, Kind: r.Kind, Run: r.Run, Prompt: r.Prompt, Task: r.Task, Attempt: r.Attempt, Host: r.Host, Port: r.Port, URL: r.URL,
			Digest: r.Digest, Claim: r.Claim, Asked: When(r.Asked), Deadline: When(r.Deadline),
			Answer: r.Answer, By: r.AnsweredBy, Reason: r.Reason, Answered: When(r.Answered), Sequence: r.AskedSeq,
		})
	}
	return out, nil
}

// Egress answers rpc.EgressList.
func (c *Past) Egress(ctx context.Context, run string) ([]view.Traffic, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, err
	}
	rows, err := c.state.Traffic(ctx, run)
	if err != nil {
		return nil, err
	}
	out := make([]view.Traffic, 0, len(rows))
	for _, r := range rows {
		out = append(out, view.Traffic{ID: net.JoinHostPort(r.Host, strconv.Itoa(r.Port)), Host: r.Host, Port: r.Port, Tunnels: r.Tunnels, Sent: r.Sent, Received: r.Received})
	}
	return out, nil
}
