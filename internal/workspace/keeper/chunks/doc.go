// Package chunks keeps large files beside git's database, which would store each version of
// them whole. They are cut into chunks at places that depend on their content, so that a
// change moves few cuts; each chunk is stored once under .git/choir/chunks/ab/SHA256. A
// manifest, an ordinary blob, lists the chunks that a file consists of.
//
// It guarantees the following. A chunk is on disk before it has its name, and its name is
// before Add returns: the chunks that a manifest names exist whenever somebody can read the
// manifest. A chunk is compared with its name whenever it is read. Every version cuts the
// same bytes in the same places: the parameters are part of the format. A manifest is only
// accepted exactly as Encode makes it, for anybody may have put it into a tree. A chunk
// that was found to exist is protected from removal for as long as a new one.
//
// It never reads the live tree or a commit, and does not know which chunks are needed:
// whoever asks for a removal does.
package chunks
