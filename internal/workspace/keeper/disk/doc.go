// Package disk is how the keeper reads and writes files: a file that a box can write is
// opened once, by descriptor, beneath the tree's root and without following links; the
// engine's own files are written atomically and synced.
//
// It never decides what a file means, and runs no program.
package disk
