// Package commands runs the user's own commands in a computer: on the live tree, in a box
// of the terminal's kind, without a transaction but with a checkpoint before and one after.
// The log has their start and end, without the secrets that the command's line contains.
// When a command is reported as ended, what it did is on disk.
package commands
