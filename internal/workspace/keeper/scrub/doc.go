// Package scrub reads everything that the history reaches, the newest first and a slice at
// a time, and compares it with its name: a disk that gives back other bytes than it was
// given is not noticed by git until somebody needs them. What is damaged is made again (see
// package heal), and the rest is named by the checkpoint and path where it was met.
//
// What holds of it:
//
//   - A pass comes to its end, however short its slices are and however often the keeper
//     ends: where it stands is kept after each slice. That only saves work: what can't be
//     read of it begins anew.
//   - What can't be read is damage; that git could not look is an error.
//   - What a pass remembers is bounded.
//
// It never holds up a change of the tree or its history, and removes nothing.
package scrub
