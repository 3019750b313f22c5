package computer

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// maxProposalDiff bounds the diff of a proposal that is shown, in bytes.
const maxProposalDiff = 512 << 10

// Proposals answers rpc.ProposalList.
func (c *Computer) Proposals(ctx context.Context, id string, all bool, before uint64, limit int) ([]view.Proposal, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	if _, err := c.documents.Get(ctx, id); err != nil {
		return nil, false, err
	}
	rows, err := c.documents.Proposals(ctx, state.ProposalFilter{Document: id, Open: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
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

// Proposal answers rpc.ProposalGet.
func (c *Computer) Proposal(ctx context.Context, id, proposal string) (view.Proposal, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Proposal{}, err
	}
	p, err := c.documents.Proposal(ctx, id, proposal)
	if err != nil {
		return view.Proposal{}, err
	}
	out := proposalOf(p)
	if p.Status != state.ProposalOpen {
		return out, nil
	}
	v, err := c.documents.Preview(ctx, p)
	if err != nil {
		return view.Proposal{}, err
	}
	out.On, out.Overlaps = v.Head.Revision, len(v.Overlaps)
	out.Diff, out.Truncated = document.Unified(v.Head.Path, v.Head.Body, v.Merged, maxProposalDiff)
	return out, nil
}

func proposalOf(p state.Proposal) view.Proposal {
	return view.Proposal{
		ID: p.ID, Document: p.Document, Base: p.Base, Author: p.Author, Role: p.Role, Run: p.Run, Task: p.Task, Time: past.When(p.Time), Sequence: p.Seq,
		SHA256: p.SHA256, Status: view.ProposalStatus(p.Status), By: p.By, Revision: p.Revision, Successor: p.Successor, Resolved: past.When(p.Resolved), Body: p.Body,
	}
}

// Resolve answers rpc.ProposalAccept and rpc.ProposalDismiss.
func (c *Computer) Resolve(ctx context.Context, by contract.Actor, id, proposal string, accept bool) (view.Resolved, error) {
	do := c.documents.Dismiss
	if accept {
		do = c.documents.Accept
	}
	done, err := do(ctx, id, proposal, document.By(by))
	return view.Resolved{ID: done.Proposal, Resolution: done.Resolution, Revision: done.Revision, Sequence: done.Seq}, err
}
