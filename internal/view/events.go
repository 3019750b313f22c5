package view

import (
	"slices"

	"choir.dev/choiros/contract"
)

// EventQuery selects events of the log. Zero fields select everything.
type EventQuery struct {
	After   uint64 // only what has a greater sequence
	Limit   int    // of the page; 0 and more than 500 mean 500
	Types   []string
	Run     string
	Task    string
	Subject string
}

// Whole says whether the query selects every event.
func (q EventQuery) Whole() bool {
	return len(q.Types) == 0 && q.Run == "" && q.Task == "" && q.Subject == ""
}

// Selects says whether an event is one of those that are asked for.
func (q EventQuery) Selects(e contract.Event) bool {
	return e.Sequence > q.After && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		(q.Run == "" || q.Run == e.Run) && (q.Task == "" || q.Task == e.Task) && (q.Subject == "" || q.Subject == e.Subject)
}

// EventPage is one page of a query's answer, ascending.
type EventPage struct {
	Events []contract.Event `json:"events"`
	// Next is the After of the next page, which exists already if More is set, and
	// otherwise once something has happened.
	Next uint64 `json:"next"`
	More bool   `json:"more"`
	Last uint64 `json:"last"` // sequence of the log's newest event
}
