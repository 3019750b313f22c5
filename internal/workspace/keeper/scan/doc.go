// Package scan scans the live tree: it walks it, decides what is ignored, compares it with
// the index of what is captured, and stores the content of what differs. It scans what a
// task wrote over a snapshot in the same way.
//
// It never writes to the tree and makes no commit: what a scan found becomes history only
// when the engine takes it into the index and moves the branch. Nothing in a tree is an
// instruction to it except ignore files, whose cost is bounded.
package scan
