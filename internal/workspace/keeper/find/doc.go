// Package find looks for contents by their SHA-256 in what a computer has: its live files,
// its trash and all versions in its history. What the host keeps by the SHA-256 of its
// content may be in the tree as well, if an agent wrote it or a user uploaded it; when the
// host's copy is damaged, this package looks for another.
//
// It reads no more bytes and takes no more time than allowed, and says when that ended a
// search. A result is a place, whose content may have changed by the time that it is
// opened: the caller compares it.
//
// It never writes, and follows no link.
package find
