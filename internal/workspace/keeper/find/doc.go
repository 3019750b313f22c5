// Package find looks for contents by their SHA-256 in what a computer has: its live files,
// its trash and all versions in its history. What the host keeps by the SHA-256 of its
// content may be in the tree as well, as something that an agent wrote or a user uploaded;
// when the host's copy is damaged, this looks for another.
//
// What holds of it: it reads no more bytes and takes no more time than it may, and says when
// that ended it. What it found is told by where it is, and may be another content by the
// time that it is opened: whoever asks compares.
//
// It never writes, and follows no link.
package find
