// Package gitindex writes .git/index, with which people's own git in a terminal compares
// the tree. It is git's split index: all paths of some checkpoint in a shared base, and in
// the index itself what has changed since, so that its cost depends on what a checkpoint
// changed.
//
// It is a cache: it is not synced, nothing acknowledged depends on it, and the keeper never
// reads it; one that is damaged is written anew.
//
// It never reads the live tree: the caller says in which state a path was captured.
package gitindex
