package view

import "choir.dev/choiros/contract"

// WaitingKind says what waits for a person.
type WaitingKind string

// What waits.
const (
	WaitsEffect WaitingKind = "effect" // what may have happened outside: somebody has to look, and say what they found
	WaitsReview WaitingKind = "review" // work that is not published before somebody has looked at it
	// These are waited for until their deadlines.
	WaitsApproval WaitingKind = "approval" // what only a person can grant
	WaitsQuestion WaitingKind = "question" // of a run's model
	// WaitsUnknown is nothing that waits: the computer could not be asked. It does not take the others' inbox.
	WaitsUnknown WaitingKind = "unknown"
)

// Waiting is something of a computer that a person is to deal with. Exactly one of Effect, Review, Approval, Question and
// Reason is set.
type Waiting struct {
	Computer contract.CID       `json:"computer"`
	Name     string             `json:"name"` // the computer's
	Kind     WaitingKind        `json:"kind"`
	Run      string             `json:"run,omitempty"`  // of a question
	Prompt   string             `json:"prompt"`         // of its run
	Goal     string             `json:"goal,omitempty"` // of its task
	Over     bool               `json:"over,omitempty"` // whether the run has ended
	Effect   *Effect            `json:"effect,omitempty"`
	Review   *Review            `json:"review,omitempty"`
	Approval *Approval          `json:"approval,omitempty"`
	Question *contract.Question `json:"question,omitempty"`
	Reason   string             `json:"reason,omitempty"` // why the computer could not be asked, in a sentence for a person
}
