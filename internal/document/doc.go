// Package document holds a computer's living documents: Markdown texts whose
// authority is the log, revision by revision, with who made each and why.
//
// A revision is appended on condition that its document has not moved
// (compare-and-append); if it has, the change is rebased by a three-way merge
// of lines and tried again. An agent's change to text that someone else has
// touched since is refused with a ConflictError; a user's change wins over an
// agent's.
//
// What is refused can be kept as a proposal: the whole text with its base,
// which waits until a user accepts it, as a merge in which it wins, or
// dismisses it.
//
// SectionsOf renders what the document of a run says of it.
package document
