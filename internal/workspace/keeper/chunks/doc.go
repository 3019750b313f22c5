// Package chunks keeps large files beside git's database, which would store each version
// of them whole: cut into chunks where their content says so, so that a change moves few
// cuts, each chunk once under .git/choir/chunks/ab/SHA256. A manifest, an ordinary blob,
// says of which chunks a file consists.
//
// What holds of it:
//
//   - A chunk is on disk before it has its name, and its name before Add returns: what a
//     manifest names is there whenever somebody can read the manifest.
//   - A chunk is compared with its name whenever it is read.
//   - The same bytes are cut in the same places, by every version: the values are part of
//     the format.
//   - A manifest is taken only as Encode makes it; who put one into a tree is not known.
//   - A chunk that is counted on is not removed at the same time: finding one keeps it for
//     as long as a new one is kept.
//
// It never reads the live tree or a commit, and does not know which chunks are needed:
// who asks for a removal says so.
package chunks
