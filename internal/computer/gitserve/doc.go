// Package gitserve answers stock git's requests for the repositories of one
// computer: clone and fetch from what lies in the live tree, and push, which
// becomes a publish with a checkpoint, also where it is into the history of the
// computer's own files. Git itself speaks the protocol, in a box of
// its own for each request, without a network, with none of the repository's own
// configuration and with nothing writable but what the request may change.
package gitserve
