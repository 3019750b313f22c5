// Package commands runs what the user starts with their own hands in a computer: on the
// live tree, in a box of the terminal's kind, without a transaction but with a checkpoint
// before and one after. Both ends stand in the log without the secrets that the command's
// line holds, and whoever is told that it ended may pull the plug.
package commands
