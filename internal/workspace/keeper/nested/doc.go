// Package nested reads what the live tree's own repositories, those that people and agents
// cloned or made in it, say of themselves. To the keeper they are data: this is where a
// path within one is told from others, and where an index, which names what a repository
// tracks, is read.
//
// What holds of it: all of it may have been written by a box. An index is opened beneath
// its folder, without links, and read within bounds of bytes, of names and of all names of
// a tree together; one that is damaged tracks nothing.
//
// It never runs git, follows no setting of a repository, and writes nothing.
package nested
