package rpc

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// MemoryRequest lists facts.
type MemoryRequest struct {
	At
	Paged
	All bool `query:"all" doc:"those that were forgotten, too"`
}

// RememberRequest has a fact kept.
type RememberRequest struct {
	At
	Body view.Remember
}

// Validate implements validation.
func (r RememberRequest) Validate() error { return r.Body.Validate() }

// OnFact names a fact, or an event that facts came from.
type OnFact struct {
	At
	Fact string `path:"fact" maxLength:"36" doc:"a fact, or an event that facts came from"`
}

// Validate implements validation.
func (r OnFact) Validate() error { return contract.ValidID("fact", r.Fact) }

// What people told the computer to keep. No program is offered these as tools, and a page may only read them: what is
// kept speaks to all later runs in a person's name.
var (
	MemoryList = list[MemoryRequest, view.Fact](Declared{
		Name: "memory.list", Summary: "What the computer was told to keep, newest first",
		HTTP: get("/memory", "memory-list"), May: contract.CanRead, Callers: API | Desktop, Noun: "facts"})
	MemoryRemember = single[RememberRequest, view.Fact](Declared{
		Name: "memory.remember", Summary: "Have the computer keep a fact, which all later runs are told",
		Detail: "What is kept already in the same words is answered as it is. At most 40 facts of at most 4,096 bytes together are kept.",
		HTTP:   post("/memory", "memory-remember"), May: contract.CanWrite, Callers: API, Effect: Stores})
	MemoryForget = single[OnFact, view.Forgotten](Declared{
		Name: "memory.forget", Summary: "Have a fact forgotten, and what follows from it; an undo keeps them again",
		HTTP: remove("/memory/{fact}", "memory-forget"), May: contract.CanWrite, Callers: API, Effect: Governs})
)
