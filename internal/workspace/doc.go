// Package workspace is the host's side of a computer's files and history. It
// never opens a workspace: it speaks to the engine in the keeper box, puts
// changes in order, and appends to the log what the keeper has made durable.
package workspace
