package rpc

import (
	"errors"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/view"
)

// OnDocument names a document.
type OnDocument struct {
	At
	Document string `path:"document" maxLength:"36"`
}

// Validate implements validation.
func (r OnDocument) Validate() error { return contract.ValidID("document", r.Document) }

// DocumentRequest asks for a revision.
type DocumentRequest struct {
	OnDocument
	Revision int `query:"revision" minimum:"0" doc:"0: the newest"`
}

// ProposalsRequest lists a document's proposals.
type ProposalsRequest struct {
	OnDocument
	Paged
	All bool `query:"all" doc:"those that were resolved, too"`
}

// OnProposal names a proposal.
type OnProposal struct {
	OnDocument
	Proposal string `path:"proposal" maxLength:"36"`
}

// Validate implements validation.
func (r OnProposal) Validate() error {
	return errors.Join(r.OnDocument.Validate(), contract.ValidID("proposal", r.Proposal))
}

const (
	atDocument = "/documents/{document}"
	atProposal = atDocument + "/proposals/{proposal}"
)

// Living documents.
var (
	DocumentGet = single[DocumentRequest, view.Document](Declared{
		Name: "document.get", Summary: "One revision of a living document", HTTP: get(atDocument, "documents-get"), May: grant.View, Doors: API | Desktop})
	ProposalList = list[ProposalsRequest, view.Proposal](Declared{
		Name: "proposal.list", Summary: "Changes that wait for you, newest first, without their text",
		HTTP: get(atDocument+"/proposals", "proposals-list"), May: grant.View, Doors: API | Desktop, Noun: "proposals"})
	ProposalGet = single[OnProposal, view.Proposal](Declared{
		Name: "proposal.get", Summary: "One proposed change, and what accepting it would do",
		HTTP: get(atProposal, "proposals-get"), May: grant.View, Doors: API | Desktop})
	ProposalAccept = single[OnProposal, view.Resolved](Declared{
		Name: "proposal.accept", Summary: "Merge a proposed change into the document; where both changed the same lines, it wins",
		HTTP: post(atProposal+"/accept", "proposals-accept"), May: grant.Edit, Doors: API | Desktop, Effect: Stores})
	ProposalDismiss = single[OnProposal, view.Resolved](Declared{
		Name: "proposal.dismiss", Summary: "Decide against a proposed change",
		HTTP: post(atProposal+"/dismiss", "proposals-dismiss"), May: grant.Edit, Doors: API | Desktop, Effect: Stores})
)
