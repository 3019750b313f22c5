// Package heal makes again what of the history is damaged or missing: a blob, a manifest or
// a chunk from the live file, a snapshot or the trash, whichever still holds it; a tree of
// the newest checkpoint from what is known of that.
//
// What holds of it:
//
//   - Only bytes that are what a name says are ever put under that name.
//   - What lies under a damaged object's name is kept, not lost.
//   - That nothing else holds it is said, as Damaged, and never taken for success.
//   - Copies are opened beneath their folder, without links: boxes wrote them.
//
// It never changes the live tree, a snapshot or the trash, and does not look for damage.
package heal
