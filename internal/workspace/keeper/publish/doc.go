// Package publish moves files of a live tree: plans that are rolled forward after any
// crash, exchanges that compare what they displaced with what was expected, the trash, the
// intents of changes that the host does not know of yet, merges with what somebody wrote at
// the same time, and late writes through a file descriptor that was still open.
//
// It never decides that something is to be changed, and never removes the only copy of a
// file's content: what is displaced goes to the trash, into the live tree or under a ref.
// It does not serialise changes: its caller has one change under way at a time.
package publish
