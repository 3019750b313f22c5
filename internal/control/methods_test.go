package control_test

import (
	"context"
	"strings"

	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Methods are the declared methods that the tests call.
func (m *machine) Methods() rpc.Table {
	t := rpc.Table{}
	rpc.Bind(t, rpc.ComputerRebuild, func(ctx context.Context, _ rpc.Caller, in rpc.RebuildRequest) (view.Rebuilt, error) {
		return view.Rebuilt{Check: in.Body.Check, Equal: true, Sequence: m.Last()}, nil
	})
	rpc.Bind(t, rpc.StateSnapshot, func(ctx context.Context, _ rpc.Caller, _ rpc.Of) (view.Snapshot, error) { return m.Snapshot(ctx) })
	rpc.Bind(t, rpc.LogRead, func(ctx context.Context, _ rpc.Caller, in rpc.LogRequest) (view.EventPage, error) {
		return m.Events(ctx, view.EventQuery{After: in.After, Limit: in.Limit})
	})
	rpc.Bind(t, rpc.Action, func(ctx context.Context, who rpc.Caller, in rpc.ActionRequest) (view.Acted, error) {
		a, err := in.Action(who.Actor)
		if err != nil {
			return view.Acted{}, err
		}
		return m.Act(ctx, a.About())
	})
	rpc.Bind(t, rpc.RunList, func(ctx context.Context, _ rpc.Caller, in rpc.RunsRequest) (rpc.List[view.Run], error) {
		runs, err := m.Runs(ctx, in.Before, in.Limit)
		return rpc.Listed(runs, len(runs) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.ApprovalList, func(ctx context.Context, _ rpc.Caller, in rpc.ApprovalsRequest) (rpc.List[view.Approval], error) {
		return rpc.Listed(m.Approvals(ctx, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ApprovalShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnApproval) (view.Approval, error) {
		list, _, err := m.Approvals(ctx, true, 0, 1)
		return list[0], err
	})
	rpc.Bind(t, rpc.ApprovalAnswer, func(ctx context.Context, who rpc.Caller, in rpc.DecideRequest) (view.Acted, error) {
		return m.Decide(ctx, who.Actor.Account(), in.Approval, in.Body)
	})
	rpc.Bind(t, rpc.EgressList, func(ctx context.Context, _ rpc.Caller, in rpc.EgressRequest) (rpc.List[view.Traffic], error) {
		list, err := m.Egress(ctx, in.Run)
		return rpc.Listed(list, false, err)
	})
	rpc.Bind(t, rpc.DocumentGet, func(ctx context.Context, _ rpc.Caller, in rpc.DocumentRequest) (view.Document, error) {
		return m.Document(ctx, in.Document, in.Revision)
	})
	rpc.Bind(t, rpc.ProposalList, func(ctx context.Context, _ rpc.Caller, in rpc.ProposalsRequest) (rpc.List[view.Proposal], error) {
		return rpc.Listed(m.Proposals(ctx, in.Document, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ProposalGet, func(ctx context.Context, _ rpc.Caller, in rpc.OnProposal) (view.Proposal, error) {
		return m.Proposal(ctx, in.Document, in.Proposal)
	})
	rpc.Bind(t, rpc.ProposalAccept, func(ctx context.Context, who rpc.Caller, in rpc.OnProposal) (view.Resolved, error) {
		return m.Resolve(ctx, who.Actor, in.Document, in.Proposal, true)
	})
	rpc.Bind(t, rpc.ProposalDismiss, func(ctx context.Context, who rpc.Caller, in rpc.OnProposal) (view.Resolved, error) {
		return m.Resolve(ctx, who.Actor, in.Document, in.Proposal, false)
	})
	rpc.Bind(t, rpc.CommandStop, func(ctx context.Context, _ rpc.Caller, in rpc.OnCommand) (rpc.None, error) {
		return rpc.Done(m.StopCommand(ctx, in.Command))
	})
	m.bindHistory(t)
	m.bindFiles(t)
	return t
}

func (m *machine) bindHistory(t rpc.Table) {
	rpc.Bind(t, rpc.CheckpointList, func(ctx context.Context, _ rpc.Caller, in rpc.CheckpointsRequest) (rpc.List[view.Checkpoint], error) {
		return rpc.Listed(m.Checkpoints(ctx, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.CheckpointGet, func(ctx context.Context, _ rpc.Caller, in rpc.ShowCheckpointRequest) (view.Checkpoint, error) {
		return m.ShowCheckpoint(ctx, in.ID)
	})
	rpc.Bind(t, rpc.CheckpointCreate, func(ctx context.Context, who rpc.Caller, in rpc.CheckpointRequest) (view.Checkpointed, error) {
		return m.Checkpoint(ctx, who.Actor, in.Body.Message)
	})
	rpc.Bind(t, rpc.CheckpointDiff, func(ctx context.Context, _ rpc.Caller, in rpc.DiffRequest) (view.Diff, error) {
		return m.Diff(ctx, in.DiffRequest)
	})
	restore := func(who rpc.Caller, r view.RestoreRequest) (view.Restored, error) {
		r.By = who.Actor
		return m.Restore(context.Background(), r)
	}
	rpc.Bind(t, rpc.CheckpointRestore, func(_ context.Context, who rpc.Caller, in rpc.RestoreRequest) (view.Restored, error) {
		return restore(who, in.Body)
	})
	rpc.Bind(t, rpc.CheckpointUndo, func(_ context.Context, who rpc.Caller, in rpc.UndoRequest) (view.Restored, error) {
		return restore(who, view.RestoreRequest{Undo: true, DryRun: in.Body.DryRun})
	})
	rpc.Bind(t, rpc.CheckpointRewind, func(_ context.Context, who rpc.Caller, in rpc.RewindRequest) (view.Restored, error) {
		to := in.Body.To
		if to == "" {
			to = strings.Repeat("a", 40)
		}
		return restore(who, in.Restore(to))
	})
}

func (m *machine) bindFiles(t rpc.Table) {
	rpc.Bind(t, rpc.FilesList, func(ctx context.Context, _ rpc.Caller, in rpc.FilesRequest) (rpc.List[view.File], error) {
		after := in.After[strings.LastIndex(in.After, "/")+1:]
		files, err := m.ListFiles(ctx, in.Path, after, in.Limit)
		return rpc.Listed(files, len(files) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.FilesRemove, func(ctx context.Context, who rpc.Caller, in rpc.RemoveRequest) (rpc.None, error) {
		return rpc.Done(m.RemoveFile(ctx, who.Actor, in.Path, in.Recursive))
	})
	rpc.Bind(t, rpc.FilesMove, func(ctx context.Context, who rpc.Caller, in rpc.MoveRequest) (view.File, error) {
		return m.MoveFile(ctx, who.Actor, in.Body.From, in.Body.To)
	})
	rpc.Bind(t, rpc.FilesAddURL, func(ctx context.Context, who rpc.Caller, in rpc.AddRequest) (view.Added, error) {
		return m.AddURL(ctx, who.Actor, in.Body)
	})
}
