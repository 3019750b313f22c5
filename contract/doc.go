// Package contract holds what all parts of ChoirOS agree on: the event
// envelope and every event type, the subjects they travel on, the task and
// result that pass between Director and Associate, and the model turn that
// passes between a loop and the gateway.
//
// It has types, validation and JSON Schemas; it does no I/O and imports
// nothing else of the project. Every decoder is strict: unknown fields,
// oversized values and malformed identifiers are refused with an error that
// names the field (see FieldError).
//
// The rules stand beside the fields (see Rule). go generate writes the JSON
// Schemas in schema/ and the desktop's TypeScript types from them.
package contract

//go:generate go run ./gen -root ..
