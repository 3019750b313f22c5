// Package disk is how the keeper reads and writes files: what a box can write is
// opened once, by descriptor, beneath the tree's root and without following links;
// what is the engine's own is written whole or not at all, and synced.
//
// It never decides what a file means, and runs no program.
package disk
