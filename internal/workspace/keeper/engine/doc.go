// Package engine is the git and file engine of a computer: it carries out the requests
// about the live tree and its history, one change at a time, and heals both. It runs inside
// the keeper's box, the only box that may write the workspace's .git; it has no network and
// no secrets. Package door serves it with the types of package wire.
//
// It never starts a program and never writes an object itself (gitstore does), never walks
// the tree itself (scan does), and moves no file of it that publish has not journalled.
package engine
