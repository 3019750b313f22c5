// Package computer is one awake computer: it owns the log, the state, the keeper's
// box, the shell and the dispatcher, and puts them behind the interface that the
// control plane serves. Machine is what it shares with the others of its machine;
// it knows none of them.
package computer
