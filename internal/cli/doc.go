// Package cli is the command line without its verbs: how a verb is declared, what all verbs
// share, and what is made from the declarations: help, docs/cli.md, the manual pages and
// completions.
//
// A verb either asks a running control plane, with a client that is made for it, or works
// on this machine. It shows its answer with Call.Show, as a table or as JSON, and ends with
// an Exit or an error.
package cli
