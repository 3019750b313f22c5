// Package scrub reads everything that the history reaches, the newest first and a slice at
// a time, and compares it with its id: if a disk returns other bytes than were written, git
// does not notice before somebody needs them. What is damaged is restored (see package
// heal), and what can't be is reported with the checkpoint and path where it was found.
//
// It guarantees:
//
//   - A pass comes to its end, however short its slices are and however often the keeper's
//     process ends: its position is stored after each slice. That only saves work: a
//     position that can't be read begins a new pass.
//   - An object that can't be read is damage; that git could not run is an error.
//   - The memory of a pass is bounded.
//
// It never delays a change of the tree or its history, and removes nothing.
package scrub
