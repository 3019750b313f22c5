// Package identity holds who may use this control plane: accounts, one-time links, browser
// sessions, tickets to a desktop, and API tokens, in one SQLite file. The same file counts
// what calls of models consumed on this machine, from the logs of its computers.
//
// Every secret is 256 random bits, handed out once and kept only as its SHA-256; whoever
// reads the file can't sign in with what it holds. Who a caller is and what they hold is
// answered from memory while the file does not change.
package identity
