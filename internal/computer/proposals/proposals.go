// Package proposals lists and resolves proposals: changes to living documents that could
// not be merged automatically, and that people accept or dismiss. For each it shows what
// accepting it would change.
package proposals

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// maxProposalDiff limits the diff of a proposal that is shown, in bytes.
const maxProposalDiff = 512 << 10

// Proposals answers the methods about the proposals of one computer.
type Proposals struct {
	Log       *ledger.Log
	State     *state.Store
	Documents *document.Documents
}

// List answers rpc.ProposalList.
func (a Proposals) List(ctx context.Context, id string, all bool, before uint64, limit int) ([]view.Proposal, bool, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return nil, false, err
	}
	if _, err := a.Documents.Get(ctx, id); err != nil {
		return nil, false, err
	}
	rows, err := a.Documents.Proposals(ctx, state.ProposalFilter{Document: id, Open: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	out := make([]view.Proposal, 0, len(rows))
	for _, p := range rows {
		out = append(out, proposalOf(p))
	}
	return out, more, nil
}

// Get answers rpc.ProposalGet.
func (a Proposals) Get(ctx context.Context, id, proposal string) (view.Proposal, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return view.Proposal{}, err
	}
	p, err := a.Documents.Proposal(ctx, id, proposal)
	if err != nil {
		return view.Proposal{}, err
	}
	out := proposalOf(p)
	if p.Status != state.ProposalOpen {
		return out, nil
	}
	v, err := a.Documents.Preview(ctx, p)
	if err != nil {
		return view.Proposal{}, err
	}
	out.On, out.Overlaps = v.Head.Revision, len(v.Overlaps)
	out.Diff, out.Truncated = document.Unified(v.Head.Path, v.Head.Body, v.Merged, maxProposalDiff)
	return out, nil
}

func proposalOf(p state.Proposal) view.Proposal {
	return view.Proposal{
		ID: p.Proposal, Document: p.Document, Base: p.Base, Author: p.Author, Role: p.Role, Run: p.Run, Task: p.Task, Time: past.When(p.Time), Sequence: p.Seq,
		SHA256: p.SHA256, Status: view.ProposalStatus(p.Status), By: p.By, Revision: p.Revision, Successor: p.Successor, Resolved: past.When(p.Resolved), Body: p.Body,
	}
}

// Resolve answers rpc.ProposalAccept and rpc.ProposalDismiss.
func (a Proposals) Resolve(ctx context.Context, by contract.Actor, id, proposal string, accept bool) (view.Resolved, error) {
	do := a.Documents.Dismiss
	if accept {
		do = a.Documents.Accept
	}
	done, err := do(ctx, id, proposal, document.By(by))
	return view.Resolved{ID: done.Proposal, Resolution: done.Resolution, Revision: done.Revision, Sequence: done.Seq}, err
}

// Bind binds the methods about proposals.
func (a Proposals) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.ProposalList, func(ctx context.Context, _ rpc.Caller, in rpc.ProposalsRequest) (rpc.List[view.Proposal], error) {
		return rpc.Listed(a.List(ctx, in.Document, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.ProposalGet, func(ctx context.Context, _ rpc.Caller, in rpc.OnProposal) (view.Proposal, error) {
		return a.Get(ctx, in.Document, in.Proposal)
	})
	for m, accept := range map[*rpc.Method[rpc.OnProposal, view.Resolved]]bool{rpc.ProposalAccept: true, rpc.ProposalDismiss: false} {
		rpc.Bind(t, m, func(ctx context.Context, who rpc.Caller, in rpc.OnProposal) (view.Resolved, error) {
			return a.Resolve(ctx, who.Actor, in.Document, in.Proposal, accept)
		})
	}
}
