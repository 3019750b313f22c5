// Package wire holds the messages between a host and a computer's keeper: requests,
// answers, the error that crosses the tether, the limits that a host sets, and the client
// for all of it. It is the only part of the keeper that the host links.
//
// It never opens a file, starts a program or reads what git or a tree contains. What it
// decodes are bounded answers, which come from a box: the caller validates what it uses.
package wire
