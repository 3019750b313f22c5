// Package history is time travel in one computer: making checkpoints, showing what differs
// between them, going back to one, reverting what a run did, and undoing the last thing
// that was done, whatever it was. What an undo refers to is decided from the log's events;
// the keeper changes the files, and living documents in them get revisions.
package history
