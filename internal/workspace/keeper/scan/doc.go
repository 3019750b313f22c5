// Package scan is the look at the live tree: it walks it, decides what is ignored,
// compares what is there with the index of what is captured, and stores the content
// of what differs. It looks at what a task wrote over a snapshot in the same way.
//
// It never writes to the tree and makes no commit: what a look found becomes history
// only where the engine takes it into the index and moves the branch. Nothing that a
// tree holds is an instruction to it but an ignore file, whose cost is bounded.
package scan
