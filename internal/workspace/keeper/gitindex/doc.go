// Package gitindex writes .git/index, which people's own git in a terminal compares the
// tree with. It is git's split index: all paths of some checkpoint in a base that is
// shared, and in the index itself what has changed since, so that a checkpoint costs what
// it changed.
//
// What holds of it: it is a cache. It is not synced, nothing that is acknowledged counts on
// it, and the keeper never reads what it says; one that is not whole is written anew.
//
// It never looks at the live tree: what state a path was captured in, it is told.
package gitindex
