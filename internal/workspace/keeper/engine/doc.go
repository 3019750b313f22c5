// Package engine is the git and file engine of a computer: the live tree, its
// history, and the one change at a time that ties them together, journalled so that
// whatever dies in the middle is gone on with or was nothing. It runs inside the
// keeper box, the only box that may write the workspace's .git; it has no network and
// no secrets. Handler serves it with the words of package wire.
//
// It never starts a program and never writes an object itself: gitstore does.
package engine
