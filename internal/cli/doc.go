// Package cli is the command line without its verbs: how one is declared, what is
// the same for all of them, and what comes of the declarations, which is help, the
// pages in docs/cli.md and man, and completions.
//
// A verb either asks a running control plane, with a client that is made for it, or
// does something here. What it answers goes through Call.Show, as a table or as
// JSON; how it ends is an Exit or an error.
package cli
