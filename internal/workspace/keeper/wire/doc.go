// Package wire holds what a host and the keeper of a computer say to each other:
// requests, answers, the error that crosses the tether, the limits that a host
// sets, and the client of all that. It is all of the keeper that the host links.
//
// It never opens a file, starts a program or reads what git or a tree holds. What
// it decodes are bounded answers, which come from a box: whoever asks validates
// what they use of one.
package wire
