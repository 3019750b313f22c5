package service

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// maxProposals is more than a document has open at any time.
const maxProposals = 100

func proposalList(ctx context.Context, c call) (any, error) {
	var in struct {
		Document string `json:"document"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := contract.ValidID("document", in.Document); err != nil {
		return nil, err
	}
	list, _, err := c.c.Proposals(ctx, in.Document, false, 0, maxProposals)
	if err != nil {
		return nil, err
	}
	list, _, err = fit(list)
	return struct {
		Proposals []view.Proposal `json:"proposals"`
	}{list}, err
}

// aProposal reads a request about one proposal.
func aProposal(c call) (document, proposal string, err error) {
	var in struct {
		Document string `json:"document"`
		Proposal string `json:"proposal"`
	}
	if err := decode(c, &in); err != nil {
		return "", "", err
	}
	if err := contract.ValidID("document", in.Document); err != nil {
		return "", "", err
	}
	return in.Document, in.Proposal, contract.ValidID("proposal", in.Proposal)
}

// proposalGet answers without the body, which may not fit; the diff is cut so
// that it does.
func proposalGet(ctx context.Context, c call) (any, error) {
	document, id, err := aProposal(c)
	if err != nil {
		return nil, err
	}
	p, err := c.c.Proposal(ctx, document, id)
	if err != nil {
		return nil, err
	}
	p.Body = ""
	d, err := cutDiff(view.Diff{Diff: p.Diff, Truncated: p.Truncated})
	p.Diff, p.Truncated = d.Diff, d.Truncated
	return p, err
}

func proposalAccept(ctx context.Context, c call) (any, error)  { return resolve(ctx, c, true) }
func proposalDismiss(ctx context.Context, c call) (any, error) { return resolve(ctx, c, false) }

func resolve(ctx context.Context, c call, accept bool) (any, error) {
	document, id, err := aProposal(c)
	if err != nil {
		return nil, err
	}
	done, err := c.c.Resolve(ctx, c.user, document, id, accept)
	if err != nil {
		return nil, err
	}
	return done, nil
}
