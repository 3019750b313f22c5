// Package computer holds one awake computer: it owns the log, the state, the
// keeper's box, the desktop's box and the dispatcher, and puts them behind the
// interface that the control plane serves. Host holds all of them on a machine.
package computer
