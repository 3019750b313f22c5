package document

import (
	"context"
	"errors"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

// MaxOpen bounds the open proposals of one document; beyond it the oldest is superseded.
const MaxOpen = 20

// Resolved is how a proposal ended.
type Resolved struct {
	Proposal   string
	Resolution contract.Resolution
	Revision   int // that holds an accepted one's text
	Seq        uint64
}

// Preview is what accepting an open proposal would do. Overlaps are the places
// where the proposal's text would take the place of what was written since its
// base; Ours is what is there now.
type Preview struct {
	Head     state.Revision
	Merged   string
	Overlaps []Conflict
}

// Propose keeps a change that Revise refuses: body, written on revision base (0: on a text
// that is no revision), waits for a user. Nothing of it is applied. Key identifies the
// change, so that a repeated call makes one proposal; without a key the text does. It
// supersedes an open proposal of the same task or, where there is no task, of the same
// author and run. If the change has no effect on the newest revision, ok is false.
func (d *Documents) Propose(ctx context.Context, id string, base int, body string, by Author, key string) (p state.Proposal, ok bool, err error) {
	const op = "document.Propose"
	d.proposing.Lock()
	defer d.proposing.Unlock()
	head, err := d.fresh(ctx, id)
	if err != nil {
		return p, false, fault.Wrap(op, err)
	}
	if base < 0 || base > head.Revision {
		return p, false, fault.New(op, fault.Invalid, "", &contract.FieldError{Field: "base", Reason: fmt.Sprintf("is revision %d; the document is at %d", base, head.Revision)})
	}
	if len(body) > MaxBody {
		return p, false, fault.Wrap(op, tooLong("", len(body)))
	}
	sum := hashOf(body)
	if key == "" {
		key = fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00%d\x00%s", by.By.Kind, by.Name, by.Run, by.Task, base, sum)
	}
	proposal := contract.DeriveID(id, "proposal:"+key)
	switch p, err = d.state.Proposal(ctx, id, proposal); {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return p, false, fault.Wrap(op, err)
	default:
		// The proposal was made before. A crash may have come before those that it
		// supersedes were resolved.
		if p.Status == state.ProposalOpen {
			err = d.makeWay(ctx, p)
		}
		return p, true, fault.Wrap(op, err)
	}
	p = state.Proposal{DocumentProposed: contract.DocumentProposed{Proposal: proposal, Document: id, Base: base, Author: by.Name, SHA256: sum, Body: body},
		Role: by.By.Kind, Run: by.Run, Task: by.Task, Status: state.ProposalOpen}
	switch v, err := d.preview(ctx, head, p); {
	case err != nil:
		return p, false, fault.Wrap(op, err)
	case v.Merged == head.Body:
		return state.Proposal{}, false, nil
	}
	events, err := d.log.Append(ctx, contract.Draft{
		// The proposal is its event: what follows from it names it as its cause.
		ID: proposal, Actor: by.By, Type: "document.proposed", Subject: proposalsOf(id),
		Data: &p.DocumentProposed,
		Run:  by.Run, Task: by.Task, Causation: by.Cause,
	})
	if err != nil {
		return p, false, fault.Wrap(op, err)
	}
	p.Seq = events[0].Sequence
	return p, true, fault.Wrap(op, d.makeWay(ctx, p))
}

// proposalsOf is the subject of the events about a document's proposals. It is
// not the document's own, which revisions are conditional on.
func proposalsOf(document string) string { return "proposals/" + document }

// makeWay resolves the open proposals that a newer one supersedes.
func (d *Documents) makeWay(ctx context.Context, newest state.Proposal) error {
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return err
	}
	open, err := d.state.Proposals(ctx, state.ProposalFilter{Document: newest.Document, Open: true, Before: newest.Seq, Limit: state.MaxPage})
	if err != nil {
		return err
	}
	var drafts []contract.Draft
	stay := 1
	for _, p := range open { // newest first
		if !sameHand(p, newest) && stay < MaxOpen {
			stay++
			continue
		}
		drafts = append(drafts, resolution(p, contract.ProposalResolved{Resolution: contract.ProposalSuperseded, By: newest.Author, Successor: newest.Proposal},
			Author{By: contract.System(), Cause: newest.Proposal}))
	}
	_, err = d.log.Append(ctx, drafts...)
	return err
}

// sameHand reports whether two proposals are by the same task or, where neither is by a
// task, by the same author in the same run.
func sameHand(a, b state.Proposal) bool {
	if a.Task != "" || b.Task != "" {
		return a.Task == b.Task
	}
	return a.Role == b.Role && a.Author == b.Author && a.Run == b.Run
}

// resolution drafts the event that ends a proposal. Its id derives from the proposal's, so
// that a repeated end is the same event.
func resolution(p state.Proposal, how contract.ProposalResolved, by Author) contract.Draft {
	how.Proposal, how.Document = p.Proposal, p.Document
	return contract.Draft{
		ID: contract.DeriveID(p.Proposal, "resolved"), Actor: by.By, Type: "proposal.resolved", Subject: proposalsOf(p.Document),
		Data: &how, Causation: by.Cause,
	}
}

// Proposals lists proposals without their bodies, newest first.
func (d *Documents) Proposals(ctx context.Context, f state.ProposalFilter) ([]state.Proposal, error) {
	list, err := d.state.Proposals(ctx, f)
	return list, fault.Wrap("document.Proposals", err)
}

// Proposal returns one proposal of a document, with its body.
func (d *Documents) Proposal(ctx context.Context, document, id string) (state.Proposal, error) {
	p, err := d.state.Proposal(ctx, document, id)
	return p, fault.Wrap("document.Proposal", err)
}

// Preview says what accepting a proposal, with its body, would do to the newest
// revision.
func (d *Documents) Preview(ctx context.Context, p state.Proposal) (Preview, error) {
	head, err := d.Get(ctx, p.Document)
	if err != nil {
		return Preview{}, fault.Wrap("document.Preview", err)
	}
	v, err := d.preview(ctx, head, p)
	return v, fault.Wrap("document.Preview", err)
}

// preview merges a proposal into a revision. Where both changed the same lines, the
// proposal's text wins.
func (d *Documents) preview(ctx context.Context, head state.Revision, p state.Proposal) (Preview, error) {
	base := ""
	if p.Base > 0 {
		r, err := d.state.Revision(ctx, p.Document, p.Base)
		if err != nil {
			return Preview{}, err
		}
		base = r.Body
	}
	merged, overlaps := Merge(base, head.Body, p.Body)
	return Preview{head, merged, overlaps}, nil
}

// Accept merges a proposal into the newest revision, the proposal's text winning where both
// changed the same lines. The result is a revision by the user whose cause is the proposal.
// Accepting it again returns the same; one that was dismissed or superseded is a
// fault.Conflict.
func (d *Documents) Accept(ctx context.Context, document, id string, by Author) (Resolved, error) {
	const op = "document.Accept"
	d.proposing.Lock()
	defer d.proposing.Unlock()
	end, err := d.turns.take(ctx, document)
	if err != nil {
		return Resolved{}, fault.Wrap(op, err)
	}
	defer end()
	for range maxTries {
		p, err := d.freshProposal(ctx, document, id)
		if err != nil {
			return Resolved{}, fault.Wrap(op, err)
		}
		if p.Status != state.ProposalOpen {
			done, err := ended(p, contract.ProposalAccepted)
			return done, fault.Wrap(op, err)
		}
		drafts, revision, err := d.acceptance(ctx, p, by)
		if err != nil {
			return Resolved{}, fault.Wrap(op, err)
		}
		drafts = append(drafts, resolution(p, contract.ProposalResolved{Resolution: contract.ProposalAccepted, By: by.Name, Revision: revision},
			Author{By: by.By, Cause: p.Proposal}))
		events, err := d.log.Append(ctx, drafts...)
		if !fault.Is(err, fault.Conflict) {
			if err != nil {
				return Resolved{}, fault.Wrap(op, err)
			}
			return Resolved{p.Proposal, contract.ProposalAccepted, revision, events[len(events)-1].Sequence}, nil
		}
	}
	return Resolved{}, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("the document moved %d times while a proposal was merged", maxTries))
}

// acceptance drafts the revision that an accepted proposal makes; none if it was made
// before a crash, or if the document has the proposed text already.
func (d *Documents) acceptance(ctx context.Context, p state.Proposal, by Author) (drafts []contract.Draft, revision int, err error) {
	switch revision, err = d.accepted(ctx, p); {
	case err == nil:
		return nil, revision, nil
	case !fault.Is(err, fault.NotFound):
		return nil, 0, err
	}
	head, err := d.Get(ctx, p.Document)
	if err != nil {
		return nil, 0, err
	}
	v, err := d.preview(ctx, head, p)
	if err != nil {
		return nil, 0, err
	}
	if v.Merged == head.Body {
		return nil, head.Revision, nil
	}
	next := contract.DocumentRevised{Document: p.Document, Revision: head.Revision + 1, Title: head.Title, Path: head.Path, Body: v.Merged}
	draft, err := revise(&next, head.Seq, Author{Name: by.Name, By: by.By, Cause: p.Proposal})
	draft.ID = acceptanceID(p)
	return []contract.Draft{draft}, next.Revision, err
}

func acceptanceID(p state.Proposal) string { return contract.DeriveID(p.Proposal, "accepted") }

// accepted is the revision that accepting a proposal made; fault.NotFound when
// it made none.
func (d *Documents) accepted(ctx context.Context, p state.Proposal) (int, error) {
	return d.state.RevisionBy(ctx, p.Document, contract.OriginOfClients(d.log.CID()), acceptanceID(p))
}

// Dismiss resolves a proposal without a revision. Dismissing it again returns the same; one
// that ended otherwise is a fault.Conflict.
func (d *Documents) Dismiss(ctx context.Context, document, id string, by Author) (Resolved, error) {
	const op = "document.Dismiss"
	d.proposing.Lock()
	defer d.proposing.Unlock()
	p, err := d.freshProposal(ctx, document, id)
	if err != nil {
		return Resolved{}, fault.Wrap(op, err)
	}
	if p.Status != state.ProposalOpen {
		done, err := ended(p, contract.ProposalDismissed)
		return done, fault.Wrap(op, err)
	}
	events, err := d.log.Append(ctx, resolution(p, contract.ProposalResolved{Resolution: contract.ProposalDismissed, By: by.Name},
		Author{By: by.By, Cause: p.Proposal}))
	if err != nil {
		return Resolved{}, fault.Wrap(op, err)
	}
	return Resolved{p.Proposal, contract.ProposalDismissed, 0, events[0].Sequence}, nil
}

// ended is the answer for a proposal that was resolved before.
func ended(p state.Proposal, wanted contract.Resolution) (Resolved, error) {
	if p.Status != string(wanted) {
		return Resolved{}, fault.New("", fault.Conflict, "Its text is in the log; ask for the change again if you want it.", fmt.Errorf("the proposal was %s already, by %s", p.Status, p.By))
	}
	return Resolved{p.Proposal, wanted, p.Revision, p.ResolvedSeq}, nil
}

func (d *Documents) freshProposal(ctx context.Context, document, id string) (state.Proposal, error) {
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return state.Proposal{}, err
	}
	return d.state.Proposal(ctx, document, id)
}

// Recover resolves the proposals whose accepted text became a revision before a
// crash came.
func (d *Documents) Recover(ctx context.Context) error {
	const op = "document.Recover"
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return fault.Wrap(op, err)
	}
	for before := uint64(0); ; {
		open, err := d.state.Proposals(ctx, state.ProposalFilter{Open: true, Before: before, Limit: state.MaxPage})
		if err != nil {
			return fault.Wrap(op, err)
		}
		for _, p := range open {
			before = p.Seq
			n, err := d.accepted(ctx, p)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			made, eerr := d.state.Event(ctx, contract.OriginOfClients(d.log.CID()), acceptanceID(p))
			rev, rerr := d.state.Revision(ctx, p.Document, n)
			if err := errors.Join(err, eerr, rerr); err != nil {
				return fault.Wrap(op, err)
			}
			if _, err := d.Accept(ctx, p.Document, p.Proposal, Author{Name: rev.Author, By: made.By()}); err != nil {
				return fault.Wrap(op, err)
			}
		}
		if len(open) < state.MaxPage {
			return nil
		}
	}
}
