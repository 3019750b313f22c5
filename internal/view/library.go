package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// Source is something that a task read and quoted, as it was then.
type Source struct {
	ID        string    `json:"id"`
	Address   string    `json:"address"` // https://…, or a path in the workspace
	Title     string    `json:"title,omitempty"`
	Media     string    `json:"media,omitempty"`
	Bytes     int64     `json:"bytes"` // of its text
	Truncated bool      `json:"truncated,omitempty"`
	Read      time.Time `json:"read"`
	Commit    string    `json:"commit,omitempty"` // of a path: the checkpoint that has it so
	Run       string    `json:"run"`              // that quoted it first
	Cited     int       `json:"cited"`            // citations that rest on it
	Sequence  uint64    `json:"sequence"`
	// Text and Citations are given where one source is shown.
	Text      string              `json:"text,omitempty"`
	Citations []contract.Citation `json:"citations,omitempty"`
}
