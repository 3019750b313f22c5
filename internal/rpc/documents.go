package rpc

import (
	"errors"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// DocumentsRequest lists documents.
type DocumentsRequest struct {
	At
	Limit int `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

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

// RevisionsRequest lists a document's revisions.
type RevisionsRequest struct {
	OnDocument
	Before int `query:"before" minimum:"0" doc:"only those before this revision; 0: from the newest"`
	Limit  int `query:"limit" minimum:"1" maximum:"500" default:"60"`
}

// ReviseRequest writes a revision.
type ReviseRequest struct {
	OnDocument
	Body view.Revise
}

// Validate implements validation.
func (r ReviseRequest) Validate() error {
	return errors.Join(r.OnDocument.Validate(), r.Body.Validate())
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
	atDocument  = "/documents/{document}"
	atRevisions = atDocument + "/revisions"
	atProposal  = atDocument + "/proposals/{proposal}"
)

// Living documents.
var (
	DocumentList = list[DocumentsRequest, view.Document](Declared{
		Name: "document.list", Summary: "Living documents without their text, the most recently revised first",
		HTTP: get("/documents", "documents-list"), May: contract.CanRead, Callers: API, Noun: "documents",
		Tool: &Tool{Description: "List the living documents, the most recently revised first, without their text."}})
	DocumentGet = single[DocumentRequest, view.Document](Declared{
		Name: "document.get", Summary: "One revision of a living document", HTTP: get(atDocument, "documents-get"), May: contract.CanRead, Callers: API | Desktop,
		Tool: &Tool{Description: "Read a living document, Markdown: its newest revision, or the one that is named. Its number is what document_revise takes as base."}})
	RevisionList = list[RevisionsRequest, view.Document](Declared{
		Name: "document.revisions", Summary: "A document's revisions with their text, newest first",
		Detail: "An answer holds at most 4 MiB of text, and at least one revision; what follows is asked for with `before`, the last revision's number.",
		HTTP:   get(atRevisions, "documents-revisions"), May: contract.CanRead, Callers: API | Desktop, Noun: "revisions"})
	DocumentRevise = single[ReviseRequest, view.Revised](Declared{
		Name: "document.revise", Summary: "Write a document's next revision, made from one that you read",
		Detail: "A document that has moved since is merged with; where both changed the same lines an agent's text gives way and stays in the history, " +
			"and a person's is a conflict that changes nothing. It is in the log and in the document's file when it is acknowledged; the file of a run's document follows when no run is under way.",
		HTTP: post(atRevisions, "documents-revise"), May: contract.CanWrite, Callers: API | Desktop, Effect: Stores,
		Tool: &Tool{Description: "Write a document's next revision: the whole text, made from the revision base that you read. What others wrote since is merged; a conflict changes nothing."}})
	ProposalList = list[ProposalsRequest, view.Proposal](Declared{
		Name: "proposal.list", Summary: "Changes that wait for you, newest first, without their text",
		HTTP: get(atDocument+"/proposals", "proposals-list"), May: contract.CanRead, Callers: API | Desktop, Noun: "proposals"})
	ProposalGet = single[OnProposal, view.Proposal](Declared{
		Name: "proposal.get", Summary: "One proposed change, and what accepting it would do",
		HTTP: get(atProposal, "proposals-get"), May: contract.CanRead, Callers: API | Desktop})
	ProposalAccept = single[OnProposal, view.Resolved](Declared{
		Name: "proposal.accept", Summary: "Merge a proposed change into the document; where both changed the same lines, it wins",
		HTTP: post(atProposal+"/accept", "proposals-accept"), May: contract.CanWrite, Callers: API | Desktop, Effect: Stores})
	ProposalDismiss = single[OnProposal, view.Resolved](Declared{
		Name: "proposal.dismiss", Summary: "Decide against a proposed change",
		HTTP: post(atProposal+"/dismiss", "proposals-dismiss"), May: contract.CanWrite, Callers: API | Desktop, Effect: Stores})
)
