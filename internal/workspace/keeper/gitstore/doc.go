// Package gitstore is the repository of a live tree: objects, packs, chunks of
// large files, trees, commits, refs, and what differs or merges between them. It
// also reads what of git a box may have written, such as a nested repository's
// index, and takes nothing of it for true that it has not looked at.
//
// It never gives git a work tree: bytes are hashed and objects written here, and the
// git program sees objects and refs only. So nothing a tree says (attributes,
// filters, hooks, fsmonitor, a nested repository's configuration) is ever read as an
// instruction. It never changes the live tree, and knows of no plan, trash or
// checkpoint that is under way: that is the engine's.
package gitstore
