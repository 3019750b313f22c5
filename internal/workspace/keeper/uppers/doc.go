// Package uppers handles the folders in which the boxes of tasks write, the upper
// directories of their overlays: it makes durable what each has written, and says which of
// its folders hold anything.
//
// What was written before a call of Settle began is on disk when it ends: file by file or,
// if that is too much or lies too deep, with the whole file system. Boxes write there at
// the same time, so folders are opened beneath, without following links, and the number of
// names that are looked at is limited.
//
// The package never writes to an upper, and does not know what of it becomes a tree:
// package scan does.
package uppers
