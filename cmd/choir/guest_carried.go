//go:build embedguest

package main

// asGuest does nothing: this build carries the guest as a binary of its own, and links
// nothing that only guests need (docs/adr/0165).
func asGuest([]string) {}
