// Package rpc is the registry of what can be asked of a computer, and of the
// control plane itself. A method is declared once: its name, what it takes and
// answers with, how large that may be, who may call it and whether it only reads.
// Its HTTP route and description, its service on the bus, its call in the Go
// client and the desktop's TypeScript come of the declaration; who answers it
// binds a function to it (see Table).
//
// docs/control.md shows how a method is added.
package rpc

//go:generate go run ./gen -root ../..
