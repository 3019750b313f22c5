// Package nested reads the repositories in the live tree, which people and agents cloned or
// made there. To the keeper they are data: this package tells a path within one from other
// paths, and reads an index, which names what a repository tracks.
//
// All of it may have been written by a box. An index is opened beneath its folder, without
// following links, and read within limits on its bytes, on its names and on all names of a
// tree together; one that is damaged tracks nothing.
//
// The package never runs git, follows no setting of a repository, and writes nothing.
package nested
