// Package history is time travel in one computer: making checkpoints, showing what
// differs between them, going back to one, taking back what a run did, and undoing the
// last thing that was done, whatever it was. What it is about is decided from the log's
// events; the files themselves move in the keeper, and the documents that they are of
// follow as revisions.
package history
