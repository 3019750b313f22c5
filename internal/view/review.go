package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// Review is work of a task that waits until a person has looked at it, or was looked at.
type Review struct {
	Run          string                   `json:"run"`
	Prompt       string                   `json:"prompt"`
	Task         string                   `json:"task"`
	Goal         string                   `json:"goal"`
	Kind         contract.TaskKind        `json:"kind"`
	Attempt      int                      `json:"attempt"`
	Review       int                      `json:"review"`
	Base         string                   `json:"base"` // what the work is compared with
	Work         string                   `json:"work"` // its tree; an answer names it
	Paths        int                      `json:"paths"`
	Reason       string                   `json:"reason,omitempty"` // why it is asked once more
	Summary      string                   `json:"summary,omitempty"`
	Verification *contract.Verification   `json:"verification,omitempty"`
	Asked        time.Time                `json:"asked"`
	Decision     contract.ReviewDecision  `json:"decision,omitempty"` // empty while it waits
	By           string                   `json:"by,omitempty"`
	Answered     time.Time                `json:"answered,omitzero"`
	Only         []contract.Choice        `json:"only,omitempty"`
	Comments     []contract.ReviewComment `json:"comments,omitempty"`
	Files        []ReviewFile             `json:"files,omitempty"` // only where a single one is requested
	More         int                      `json:"more,omitempty"`  // files that are not listed; to take them, take all
	Sequence     uint64                   `json:"sequence,omitempty"`
}

// ReviewFile is a file that the work changes.
type ReviewFile struct {
	Path string            `json:"path"`
	Op   contract.ChangeOp `json:"op"`
	// Plain says why it has no hunks and can only be taken whole.
	Plain string `json:"plain,omitempty" doc:"binary, large, link, folder, repository (all below this .git), mode, or cut where the answer would have become too long"`
	Hunks []Hunk `json:"hunks,omitempty"`
}

// Hunk is a place at which a file was changed, with the lines around it.
type Hunk struct {
	ID       string `json:"id"`
	Old      int    `json:"old"` // the first line before, from 1
	OldLines int    `json:"old_lines"`
	New      int    `json:"new"` // the first line after
	NewLines int    `json:"new_lines"`
	Text     string `json:"text"` // as a unified diff has it
}

// Looked is a person's answer to a review.
type Looked struct {
	Attempt  int                      `json:"attempt" minimum:"1" maximum:"1000"`
	Review   int                      `json:"review" minimum:"1" maximum:"1000"`
	Work     string                   `json:"work" minLength:"40" maxLength:"64" doc:"the tree that the person was shown"`
	Decision contract.ReviewDecision  `json:"decision" enum:"publish,revise,discard" doc:"publish: it, or what is chosen of it; revise: back to its loop with the comments; discard: none of it"`
	Only     []contract.Choice        `json:"only,omitempty" maxItems:"2000" doc:"with publish, what is taken: paths, each with all beneath or with hunks by their ids; empty: all of it"`
	Comments []contract.ReviewComment `json:"comments,omitempty" maxItems:"100" doc:"of a line, of a file (line 0) or of all (no path)"`
}
