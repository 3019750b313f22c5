// Package hostfs lets the host work in trees that a box can write: sources, layers and
// targets of mounts, sizes, builds, and removal. Somebody else can change a path in such a
// tree between any two system calls. So everything here starts from a directory that only
// the host writes and that is held by its descriptor, opens what is beneath it without
// following any link (openat2), and then uses that descriptor only.
//
// It belongs to the local driver. A driver whose files are not on the host does not need
// it.
package hostfs
