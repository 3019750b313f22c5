// Package publish is the moves of files of a live tree: plans that are rolled forward
// whatever dies, exchanges that look at what they displaced, the trash, the intents of
// changes that the host has yet to hear of, merges of what somebody wrote in the very
// moment, and work that comes late through a descriptor that was still open.
//
// It never decides that something is to be changed, and never takes away the only copy
// of a file's content: what is displaced goes to the trash, into the live tree or
// under a ref. It takes no turns: its caller has one change under way at a time.
package publish
