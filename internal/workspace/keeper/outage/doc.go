// Package outage tells how the keeper before this one ended, and what such an end makes of
// files that were never synced: emptied ones, and ones whose end, or all of which, is zeroes.
// Of those that no checkpoint has, which can't be put back, it keeps which are doubted.
//
// What holds of it:
//
//   - What is not known is taken for the worst: without its file, or with one of another
//     boot and no goodbye, the machine ended.
//   - A goodbye is noted when all that was written is on disk, and void as soon as the next
//     keeper begins.
//   - What is doubted stays out of checkpoints, and is said, until somebody touches it: a
//     file in another state than it was found in is somebody's.
//
// It never writes to the live tree: what is put back, and what was meant to be empty, the
// engine decides.
package outage
