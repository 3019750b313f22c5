package state_test

import (
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

func by(role contract.ActorKind) func(*contract.Event) {
	return func(e *contract.Event) {
		e.Source, e.Actor = contract.Source(cid, role), contract.Actor{Kind: role}.Name()
	}
}

func withID(id string) func(*contract.Event) { return func(e *contract.Event) { e.ID = id } }

// TestProposals shows that a proposal for a document is open until it is resolved, once, by an
// actor who may resolve it, and that an event that does not fit is kept with the reason and changes
// nothing.
func TestProposals(t *testing.T) {
	l := newLog()
	run, task, doc := story(t, l)
	id := func(name string) string { return contract.DeriveID(doc, "proposal:"+name) }
	propose := func(name string, base int, body string) contract.Event {
		return l.say(t, "document.proposed", &contract.DocumentProposed{Proposal: id(name), Document: doc, Base: base, Author: "associate", SHA256: blobRef(body), Body: body},
			by(contract.KindAssociate), inRun(run), inTask(task), about("proposals/"+doc))
	}
	resolve := func(name string, as contract.Resolution, role contract.ActorKind) {
		p := &contract.ProposalResolved{Proposal: id(name), Document: doc, Resolution: as, By: "ana"}
		switch as {
		case contract.ProposalAccepted:
			p.Revision = 2
		case contract.ProposalSuperseded:
			p.Successor = id("b")
		}
		l.say(t, "proposal.resolved", p, by(role), about("proposals/"+doc))
	}
	a := propose("a", 1, "# Green\n")
	propose("b", 0, "# Red\n")
	resolve("a", contract.ProposalDismissed, contract.KindSystem)  // the system may not say this
	resolve("a", contract.ProposalSuperseded, contract.KindPerson) // nor may a user say this
	resolve("a", contract.ProposalSuperseded, contract.KindSystem)
	resolve("a", contract.ProposalAccepted, contract.KindPerson) // it has ended already
	accepted := contract.DeriveID(id("b"), "accepted")
	l.say(t, "document.revised", &contract.DocumentRevised{Document: doc, Title: "Blue", Path: "artifacts/runs/blue.md", Revision: 2, Base: 1, Author: "ana", SHA256: blobRef("# Red\n"), Body: "# Red\n"},
		by(contract.KindPerson), withID(accepted), about(doc))
	resolve("b", contract.ProposalAccepted, contract.KindPerson)
	propose("c", 3, "# Never\n") // there is no revision 3
	propose("d", 2, "# Open\n")

	path := filepath.Join(t.TempDir(), "state.sqlite")
	s := mustOpen(t, path)
	project(t, s, l)
	ctx := t.Context()
	poison, err := s.Poison(ctx, 0)
	if err != nil || len(poison) != 4 {
		t.Errorf("%d events are poison (%v): %+v", len(poison), err, poison)
	}
	list, err := s.Proposals(ctx, state.ProposalFilter{Document: doc})
	if err != nil || len(list) != 3 || list[0].Proposal != id("d") || list[1].Proposal != id("b") || list[2].Proposal != id("a") {
		t.Fatalf("%+v %v", list, err)
	}
	if p := list[1]; p.Status != string(contract.ProposalAccepted) || p.By != "ana" || p.Revision != 2 || p.Resolved == "" || p.Base != 0 {
		t.Errorf("the accepted one is %+v", p)
	}
	if p := list[2]; p.Status != string(contract.ProposalSuperseded) || p.Successor != id("b") || p.Seq != a.Sequence || p.Body != "" {
		t.Errorf("the superseded one is %+v", p)
	}
	if older, err := s.Proposals(ctx, state.ProposalFilter{Document: doc, Before: list[1].Seq}); err != nil || len(older) != 1 || older[0].Proposal != id("a") {
		t.Errorf("before it: %+v %v", older, err)
	}
	open, err := s.Proposals(ctx, state.ProposalFilter{Open: true})
	if err != nil || len(open) != 1 || open[0].Proposal != id("d") || open[0].Status != state.ProposalOpen {
		t.Errorf("open: %+v %v", open, err)
	}
	if p, err := s.Proposal(ctx, doc, id("d")); err != nil || p.Body != "# Open\n" || p.Role != contract.KindAssociate || p.Run != run || p.Task != task || p.SHA256 != blobRef("# Open\n") {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := s.Proposal(ctx, task, id("d")); !fault.Is(err, fault.NotFound) {
		t.Errorf("another document's: %v", err)
	}
	if n, err := s.RevisionOf(ctx, doc, blobRef("# Blue\n")); err != nil || n != 1 {
		t.Errorf("the text is of revision %d, %v", n, err)
	}
	if _, err := s.RevisionOf(ctx, doc, blobRef("# Never\n")); !fault.Is(err, fault.NotFound) {
		t.Errorf("a text that no revision has: %v", err)
	}
	if n, err := s.RevisionBy(ctx, doc, contract.OriginOfClients(cid), accepted); err != nil || n != 2 {
		t.Errorf("accepting made revision %d, %v", n, err)
	}
	if _, err := s.RevisionBy(ctx, doc, contract.OriginOfClients(cid), id("a")); !fault.Is(err, fault.NotFound) {
		t.Errorf("an event that made no revision: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := state.Check(ctx, path, l); err != nil || !rep.Clean() || rep.Seq != l.Last() {
		t.Errorf("a replay gives %+v %v", rep, err)
	}
}
