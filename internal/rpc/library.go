package rpc

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// LibraryRequest lists sources.
type LibraryRequest struct {
	At
	Paged
	Words string `query:"words" maxLength:"400" doc:"only sources whose address or title has these words"`
}

// OnSource names a source.
type OnSource struct {
	At
	Source string `path:"source" maxLength:"36"`
}

// Validate implements validation.
func (r OnSource) Validate() error { return contract.ValidID("source", r.Source) }

// What the computer's tasks quoted.
var (
	LibraryList = list[LibraryRequest, view.Source](Declared{
		Name: "library.list", Summary: "What the computer's tasks read and quoted, newest first",
		HTTP: get("/library", "library-list"), May: contract.CanRead, Callers: API, Noun: "sources"})
	LibraryShow = single[OnSource, view.Source](Declared{
		Name: "library.show", Summary: "A source with its text and the citations that rest on it",
		HTTP: get("/library/{source}", "library-show"), May: contract.CanRead, Callers: API})
)
