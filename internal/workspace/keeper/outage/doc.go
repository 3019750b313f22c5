// Package outage determines how the keeper before this one ended, and finds files that a
// crash of the machine damaged because they were never synced: they are empty, or their
// end, or all of them, is zeroes. Those that no checkpoint has, and that can't be restored,
// are kept in a list of suspects.
//
// What holds of it:
//
//   - What is not known is taken for the worst: without its file, or with one of another
//     boot and no clean end, the machine ended.
//   - A clean end is noted when all that was written is on disk, and void as soon as the next
//     keeper begins.
//   - What is suspect stays out of checkpoints, and is said, until somebody touches it: a
//     file in another state than it was found in is somebody's.
//
// It never writes to the live tree: what is put back, and what was meant to be empty, the
// engine decides.
package outage
