// Package hostfs is how the host touches trees that a box can write: sources,
// layers and targets of mounts, sizes, builds, and removal. A path in such a
// tree is somebody else's to change between any two looks, so everything here
// starts from a directory that only the host writes, held by descriptor, is
// opened beneath it without following any link (openat2), and is then used by
// that descriptor alone.
//
// It belongs to the local driver. Where a computer's files are not on the host,
// there is nothing for it to do.
package hostfs
