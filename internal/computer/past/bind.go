package past

import (
	"context"

	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Bind binds the methods about the past.
func (c *Past) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.StateSnapshot, func(ctx context.Context, _ rpc.Caller, _ rpc.Of) (view.Snapshot, error) { return c.Snapshot(ctx) })
	rpc.Bind(t, rpc.LogRead, func(ctx context.Context, _ rpc.Caller, in rpc.LogRequest) (view.EventPage, error) {
		return c.Events(ctx, view.EventQuery{After: in.After, Limit: in.Limit})
	})
	rpc.Bind(t, rpc.RunList, func(ctx context.Context, _ rpc.Caller, in rpc.RunsRequest) (rpc.List[view.Run], error) {
		runs, err := c.Runs(ctx, in.Before, in.Limit)
		return rpc.Listed(runs, len(runs) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.RunGet, func(ctx context.Context, _ rpc.Caller, in rpc.RunEventsRequest) (view.EventPage, error) {
		return c.Events(ctx, view.EventQuery{Run: in.Run, After: in.After, Limit: in.Limit})
	})
	rpc.Bind(t, rpc.RunTrace, func(ctx context.Context, _ rpc.Caller, in rpc.TraceRequest) (view.Trace, error) {
		trace, err := c.Trace(ctx, in.Run)
		trace.Spans = trace.Spans[min(in.After, len(trace.Spans)):]
		return trace, err
	})
	rpc.Bind(t, rpc.ReviewList, func(ctx context.Context, _ rpc.Caller, in rpc.ReviewsRequest) (rpc.List[view.Review], error) {
		return rpc.Listed(c.Reviews(ctx, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ApprovalList, func(ctx context.Context, _ rpc.Caller, in rpc.ApprovalsRequest) (rpc.List[view.Approval], error) {
		return rpc.Listed(c.Approvals(ctx, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ApprovalShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnApproval) (view.Approval, error) {
		return c.Approval(ctx, in.Approval)
	})
	rpc.Bind(t, rpc.EgressList, func(ctx context.Context, _ rpc.Caller, in rpc.EgressRequest) (rpc.List[view.Traffic], error) {
		hosts, err := c.Egress(ctx, in.Run)
		return rpc.Listed(hosts, false, err)
	})
	rpc.Bind(t, rpc.DocumentList, func(ctx context.Context, _ rpc.Caller, in rpc.DocumentsRequest) (rpc.List[view.Document], error) {
		return rpc.Listed(c.Documents(ctx, in.Limit))
	})
	rpc.Bind(t, rpc.DocumentGet, func(ctx context.Context, _ rpc.Caller, in rpc.DocumentRequest) (view.Document, error) {
		return c.Document(ctx, in.Document, in.Revision)
	})
	rpc.Bind(t, rpc.RevisionList, func(ctx context.Context, _ rpc.Caller, in rpc.RevisionsRequest) (rpc.List[view.Document], error) {
		return rpc.Listed(c.Revisions(ctx, in.Document, in.Before, in.Limit))
	})
}
