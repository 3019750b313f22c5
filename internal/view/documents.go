package view

import (
	"strings"
	"time"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// MaxText bounds the text of all documents listed in one answer, in bytes.
const MaxText = 4 << 20

// Revise is a revision that somebody writes of a document.
type Revise struct {
	Base int    `json:"base" minimum:"1" doc:"the revision that it was made from"`
	Text string `json:"text" doc:"the whole document as it shall be"`
}

// Validate refuses what no document can hold.
func (r Revise) Validate() error {
	if r.Base < 1 {
		return &contract.FieldError{Field: "base", Reason: "is not a revision's number"}
	}
	if !utf8.ValidString(r.Text) || strings.ContainsRune(r.Text, 0) {
		return &contract.FieldError{Field: "text", Reason: "is no text"}
	}
	return nil
}

// Revised is the revision that holds what was written. Merged says that it holds
// more: what others wrote since the base.
type Revised struct {
	ID       string           `json:"id"` // the document
	Revision int              `json:"revision"`
	Merged   bool             `json:"merged"`
	SHA256   contract.BlobRef `json:"sha256" doc:"of the revision's text"`
	Sequence uint64           `json:"sequence"`
}

// Proposal is a change to a document that was not made, because it touches what somebody
// else wrote since its base; a user accepts or dismisses it. On, Overlaps and Diff say what
// accepting it would do while it is open. They and Body are only given where a single
// proposal is requested.
type Proposal struct {
	ID        string             `json:"id"`
	Document  string             `json:"document"`
	Base      int                `json:"base" doc:"the revision it was made from; 0: none of them"`
	Author    string             `json:"author"`
	Role      contract.ActorKind `json:"role"`
	Run       string             `json:"run,omitempty"`
	Task      string             `json:"task,omitempty"`
	Time      time.Time          `json:"time"`
	Sequence  uint64             `json:"sequence"` // of its event; pages go by it
	SHA256    contract.BlobRef   `json:"sha256"`   // of Body
	Status    ProposalStatus     `json:"status"`
	By        string             `json:"by,omitempty" doc:"who resolved it"`
	Revision  int                `json:"revision,omitempty" doc:"that holds it, once it is accepted"`
	Successor string             `json:"successor,omitempty" doc:"the proposal that it made way for"`
	Resolved  time.Time          `json:"resolved,omitzero"`

	On        int    `json:"on,omitempty" doc:"the revision that diff is from"`
	Overlaps  int    `json:"overlaps,omitempty" doc:"in how many places it takes the place of what was written since its base"`
	Diff      string `json:"diff,omitempty" doc:"unified, at most 512 KiB"`
	Truncated bool   `json:"truncated,omitempty" doc:"whether diff is cut"`
	Body      string `json:"body,omitempty" doc:"the whole document as proposed"`
}

// ProposalStatus is what became of a proposal.
type ProposalStatus string

// What becomes of a proposal.
const (
	ProposalOpen       ProposalStatus = "open"
	ProposalAccepted   ProposalStatus = "accepted"
	ProposalDismissed  ProposalStatus = "dismissed"
	ProposalSuperseded ProposalStatus = "superseded"
)

// Resolved is how a proposal ended.
type Resolved struct {
	ID         string              `json:"id"` // the proposal
	Resolution contract.Resolution `json:"resolution"`
	Revision   int                 `json:"revision,omitempty" doc:"that holds it, once it is accepted"`
	Sequence   uint64              `json:"sequence"`
}
