// Package gitserve answers stock git's requests for the repositories of one computer: clone
// and fetch from the repositories in the live tree, and push. A push becomes a publish with
// a checkpoint, even if it goes into the history of the computer's own files. Git itself
// speaks the protocol, in a box of its own for each request, without a network, with none
// of the repository's own configuration, and with nothing writable but what the request may
// change.
package gitserve
