package past

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/webpage"
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

// Approval answers rpc.ApprovalShow: one approval, and of a request that changes something all that it would send.
func (c *Past) Approval(ctx context.Context, id string) (view.Approval, error) {
	const op = "past.Approval"
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Approval{}, err
	}
	list, err := c.approvals(ctx, state.ApprovalFilter{ID: id, Limit: 1})
	if err != nil {
		return view.Approval{}, err
	}
	if len(list) == 0 {
		return view.Approval{}, fault.New(op, fault.NotFound, "List what waits with: choir approvals", fmt.Errorf("there is no approval %s", id))
	}
	a := list[0]
	if a.Sends == "" {
		return a, nil
	}
	f, _, err := c.blobs.Open(ctx, c.cid, a.Sends)
	if err != nil {
		return a, fault.Wrap(op, err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, webpage.MaxRequest))
	if err := errors.Join(err, f.Close()); err != nil {
		return a, fault.Wrap(op, err)
	}
	var sends webpage.Sending
	if err := json.Unmarshal(raw, &sends); err != nil {
		return a, fault.New(op, fault.Internal, "", fmt.Errorf("what it would send can't be read: %w", err))
	}
	a.Body = webpage.Seen(sends.Body)
	return a, nil
}

// approvals lists the approvals that match a filter, as of the events that are projected.
func (c *Past) approvals(ctx context.Context, f state.ApprovalFilter) ([]view.Approval, error) {
	return approvalsIn(ctx, c.state, f)
}

func approvalsIn(ctx context.Context, s *state.Store, f state.ApprovalFilter) ([]view.Approval, error) {
	rows, err := s.Approvals(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]view.Approval, 0, len(rows))
	for _, r := range rows {
		out = append(out, view.Approval{
			ID: r.ID, Kind: r.Kind, Run: r.Run, Prompt: r.Prompt, Task: r.Task, Attempt: r.Attempt, Host: r.Host, Port: r.Port, URL: r.URL,
			Method: r.Method, Sends: r.Sends, Again: r.Again, Request: r.Request,
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
