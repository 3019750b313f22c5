//go:build embedguest

package main

// asGuest does nothing: this build carries the guest as a binary of its own, and
// links nothing of what only guests do (docs/adr/0165).
func asGuest([]string) {}
