// Package uppers is the folders in which the boxes of tasks write: what each has written is
// made durable, and looked at for whether there is anything.
//
// What holds of it: what was written before a settling began is on disk when it ends, by
// name or, where there is too much or too deep, with its whole file system. Boxes write
// there meanwhile: folders are opened beneath, without links, and as many names are looked
// at as may be.
//
// It never writes to one, and does not know what of it becomes a tree: package scan does.
package uppers
