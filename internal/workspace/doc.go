// Package workspace is the host's side of a computer's files and history. It never opens
// the live tree: it asks the engine in the keeper's box, puts changes in order, and appends
// to the log what the keeper has made durable.
package workspace
