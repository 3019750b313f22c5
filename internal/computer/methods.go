package computer

import (
	"context"
	"errors"
	"path"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Methods implements control.Computer: what the computer answers of the declared
// methods.
func (c *Computer) Methods() rpc.Table { return c.methods }

func (c *Computer) bindMethods() rpc.Table {
	t := rpc.Table{}
	BindHistory(t, c, func(ctx context.Context) (string, error) {
		f, err := c.Frame(ctx)
		return f.Desktop.LastGood, err
	})
	c.bindRuns(t)
	c.bindDocuments(t)
	c.bindFiles(t)
	rpc.Bind(t, rpc.ComputerRebuild, func(ctx context.Context, _ rpc.Caller, in rpc.RebuildRequest) (view.Rebuilt, error) {
		return c.upkeep.Rebuild(ctx, in.Body.Check)
	})
	rpc.Bind(t, rpc.CommandStop, func(ctx context.Context, _ rpc.Caller, in rpc.OnCommand) (rpc.None, error) {
		return rpc.Done(c.StopCommand(ctx, in.Command))
	})
	rpc.Bind(t, rpc.CommandSignal, func(ctx context.Context, _ rpc.Caller, in rpc.SignalRequest) (rpc.None, error) {
		return rpc.Done(c.SignalCommand(ctx, in.Command, in.Body))
	})
	rpc.Bind(t, rpc.StateSnapshot, func(ctx context.Context, _ rpc.Caller, _ rpc.Of) (view.Snapshot, error) { return c.Snapshot(ctx) })
	rpc.Bind(t, rpc.LogRead, func(ctx context.Context, _ rpc.Caller, in rpc.LogRequest) (view.EventPage, error) {
		return c.Events(ctx, view.EventQuery{After: in.After, Limit: in.Limit})
	})
	return t
}

func (c *Computer) bindRuns(t rpc.Table) {
	rpc.Bind(t, rpc.Action, func(ctx context.Context, who rpc.Caller, in rpc.ActionRequest) (view.Acted, error) {
		a, err := in.Action(who.Actor)
		if err != nil {
			return view.Acted{}, err
		}
		return c.Act(ctx, a.About())
	})
	rpc.Bind(t, rpc.RunList, func(ctx context.Context, _ rpc.Caller, in rpc.RunsRequest) (rpc.List[view.Run], error) {
		runs, err := c.Runs(ctx, in.Before, in.Limit)
		return rpc.Listed(runs, len(runs) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.RunGet, func(ctx context.Context, _ rpc.Caller, in rpc.RunEventsRequest) (view.EventPage, error) {
		return c.Events(ctx, view.EventQuery{Run: in.Run, After: in.After, Limit: in.Limit})
	})
	rpc.Bind(t, rpc.RunUndo, func(ctx context.Context, who rpc.Caller, in rpc.UndoRunRequest) (view.Restored, error) {
		return c.Restore(ctx, view.RestoreRequest{Run: in.Run, DryRun: in.Body.DryRun, By: who.Actor})
	})
	rpc.Bind(t, rpc.ApprovalList, func(ctx context.Context, _ rpc.Caller, in rpc.ApprovalsRequest) (rpc.List[view.Approval], error) {
		return rpc.Listed(c.Approvals(ctx, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ApprovalAnswer, func(ctx context.Context, who rpc.Caller, in rpc.DecideRequest) (view.Acted, error) {
		return c.Decide(ctx, who.Actor, in.Approval, in.Body)
	})
	rpc.Bind(t, rpc.EgressList, func(ctx context.Context, _ rpc.Caller, in rpc.EgressRequest) (rpc.List[view.Traffic], error) {
		hosts, err := c.Egress(ctx, in.Run)
		return rpc.Listed(hosts, false, err)
	})
}

func (c *Computer) bindDocuments(t rpc.Table) {
	rpc.Bind(t, rpc.DocumentGet, func(ctx context.Context, _ rpc.Caller, in rpc.DocumentRequest) (view.Document, error) {
		return c.Document(ctx, in.Document, in.Revision)
	})
	rpc.Bind(t, rpc.ProposalList, func(ctx context.Context, _ rpc.Caller, in rpc.ProposalsRequest) (rpc.List[view.Proposal], error) {
		return rpc.Listed(c.Proposals(ctx, in.Document, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ProposalGet, func(ctx context.Context, _ rpc.Caller, in rpc.OnProposal) (view.Proposal, error) {
		return c.Proposal(ctx, in.Document, in.Proposal)
	})
	for m, accept := range map[*rpc.Method[rpc.OnProposal, view.Resolved]]bool{rpc.ProposalAccept: true, rpc.ProposalDismiss: false} {
		rpc.Bind(t, m, func(ctx context.Context, who rpc.Caller, in rpc.OnProposal) (view.Resolved, error) {
			return c.Resolve(ctx, who.Actor, in.Document, in.Proposal, accept)
		})
	}
}

func (c *Computer) bindFiles(t rpc.Table) {
	rpc.Bind(t, rpc.FilesList, func(ctx context.Context, _ rpc.Caller, in rpc.FilesRequest) (rpc.List[view.File], error) {
		after := ""
		if in.After != "" {
			after = path.Base(in.After)
		}
		files, err := c.ListFiles(ctx, in.Path, after, in.Limit)
		return rpc.Listed(files, len(files) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.FilesRemove, func(ctx context.Context, who rpc.Caller, in rpc.RemoveRequest) (rpc.None, error) {
		return rpc.Done(c.RemoveFile(ctx, who.Actor, in.Path, in.Recursive))
	})
	rpc.Bind(t, rpc.FilesMove, func(ctx context.Context, who rpc.Caller, in rpc.MoveRequest) (view.File, error) {
		return c.MoveFile(ctx, who.Actor, in.Body.From, in.Body.To)
	})
	rpc.Bind(t, rpc.FilesAddURL, func(ctx context.Context, who rpc.Caller, in rpc.AddRequest) (view.Added, error) {
		return c.AddURL(ctx, who.Actor, in.Body)
	})
	rpc.Bind(t, rpc.TrashList, func(ctx context.Context, _ rpc.Caller, in rpc.TrashRequest) (rpc.List[view.Trashed], error) {
		return rpc.Listed(c.Trash(ctx, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.TrashPutBack, func(ctx context.Context, who rpc.Caller, in rpc.PutBackRequest) (view.File, error) {
		return c.PutBack(ctx, who.Actor, in.Entry, in.Body.To)
	})
}

// History is time travel, of a computer that is awake or of one that does not
// wake.
type History interface {
	Checkpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error)
	ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error)
	Checkpoint(ctx context.Context, by contract.Actor, message string) (view.Checkpointed, error)
	Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error)
	Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error)
}

// BindHistory binds time travel; good is the last checkpoint that is known to be
// good, or why nobody can say.
func BindHistory(t rpc.Table, h History, good func(context.Context) (string, error)) {
	rpc.Bind(t, rpc.CheckpointList, func(ctx context.Context, _ rpc.Caller, in rpc.CheckpointsRequest) (rpc.List[view.Checkpoint], error) {
		return rpc.Listed(h.Checkpoints(ctx, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.CheckpointGet, func(ctx context.Context, _ rpc.Caller, in rpc.ShowCheckpointRequest) (view.Checkpoint, error) {
		return h.ShowCheckpoint(ctx, in.ID)
	})
	rpc.Bind(t, rpc.CheckpointCreate, func(ctx context.Context, who rpc.Caller, in rpc.CheckpointRequest) (view.Checkpointed, error) {
		return h.Checkpoint(ctx, who.Actor, in.Body.Message)
	})
	rpc.Bind(t, rpc.CheckpointDiff, func(ctx context.Context, _ rpc.Caller, in rpc.DiffRequest) (view.Diff, error) {
		return h.Diff(ctx, in.DiffRequest)
	})
	restore := func(ctx context.Context, who rpc.Caller, r view.RestoreRequest) (view.Restored, error) {
		r.By = who.Actor
		return h.Restore(ctx, r)
	}
	rpc.Bind(t, rpc.CheckpointRestore, func(ctx context.Context, who rpc.Caller, in rpc.RestoreRequest) (view.Restored, error) {
		return restore(ctx, who, in.Body)
	})
	rpc.Bind(t, rpc.CheckpointUndo, func(ctx context.Context, who rpc.Caller, in rpc.UndoRequest) (view.Restored, error) {
		return restore(ctx, who, view.RestoreRequest{Undo: true, DryRun: in.Body.DryRun})
	})
	rpc.Bind(t, rpc.CheckpointRewind, func(ctx context.Context, who rpc.Caller, in rpc.RewindRequest) (view.Restored, error) {
		to := in.Body.To
		if to == "" {
			var err error
			if to, err = good(ctx); err != nil {
				return view.Restored{}, err
			}
			if to == "" {
				return view.Restored{}, fault.New("", fault.NotFound, "Name a checkpoint to go back to.", errors.New("no checkpoint is known to be good yet"))
			}
		}
		return restore(ctx, who, in.Restore(to))
	})
}
