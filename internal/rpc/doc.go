// Package rpc is the registry of what can be asked of a computer, and of the control plane
// itself. A method is declared once: its name, its request and answer, how large they may
// be, who may call it and whether it only reads. Its HTTP route and description, its
// service on the bus, its call in the Go client and the desktop's TypeScript are made from
// the declaration; whoever answers it binds a function to it (see Table).
//
// docs/control.md shows how a method is added.
package rpc

//go:generate go run ./gen -root ../..
