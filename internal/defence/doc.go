// Package defence lets the attack suite switch one defence off at a time, to
// show that the attack it is named for then works: a defence whose absence
// nobody notices is not tested.
//
// Code that defends asks Off with a name from this package's list:
//
//	if !defence.Off(defence.EgressServerName) { … check … }
//
// In what people run Off is a constant false that the compiler removes; only
// the build tag defenceswitches, which nothing but the suite uses, makes it
// look: at a file on the host, and at the same file bound into each box, which a
// guest reads before anything else. TestReleaseHasNoSwitches keeps that true.
package defence
