package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// EffectOpen is the outcome of an effect that is under way.
const EffectOpen = "open"

// Effect is what a call of a task changed outside of the computer, or may have.
type Effect struct {
	ID      string              `json:"id"`
	Kind    contract.EffectKind `json:"kind"`
	Run     string              `json:"run"`
	Task    string              `json:"task"`
	Attempt int                 `json:"attempt"`
	Call    string              `json:"call"`
	Target  string              `json:"target"`          // a server and its tool, or a method and an address
	What    string              `json:"what,omitempty"`  // the arguments, or their beginning
	Args    contract.BlobRef    `json:"args"`            // the arguments, whole
	Key     string              `json:"key,omitempty"`   // the idempotency key that the service was given
	Again   string              `json:"again,omitempty"` // the earlier effect that it made once more
	// Approval is what a person allowed a request with.
	Approval string           `json:"approval,omitempty"`
	Outcome  string           `json:"outcome"`          // open, done, failed or unknown; a person's word counts
	Detail   string           `json:"detail,omitempty"` // what the service answered, or its beginning
	Status   int              `json:"status,omitempty"`
	Answer   contract.BlobRef `json:"answer,omitempty"` // the answer, if detail has not all of it
	// Found is what a person found of one that was unknown.
	Found    contract.EffectFound `json:"found,omitempty"`
	Note     string               `json:"note,omitempty"`
	By       contract.ActorName   `json:"by,omitempty"`
	Time     time.Time            `json:"time"`
	Sequence uint64               `json:"sequence"` // of its intention; pages go by it
	// Arguments and Answered are the texts, where one effect is shown.
	Arguments string `json:"arguments,omitempty"`
	Answered  string `json:"answered,omitempty"`
}

// ResolveEffect is a person's word on an effect whose outcome is unknown.
type ResolveEffect struct {
	Found contract.EffectFound `json:"found" required:"true" enum:"done,not_done" doc:"what you found: it happened, or it did not"`
	Note  string               `json:"note,omitempty" maxLength:"1000" doc:"one line"`
}

// CompensateEffect asks to undo an effect outside.
type CompensateEffect struct {
	ID    string `json:"id,omitempty" doc:"UUIDv7 drawn by the sender; the same id again is the same prompt"`
	Words string `json:"words,omitempty" maxLength:"8000" doc:"what else is to be known or kept"`
}
