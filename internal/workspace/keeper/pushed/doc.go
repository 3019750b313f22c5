// Package pushed takes what stock git pushes into the history of a computer's own files
// into its store. A box made for the push has had git check it, and sends each object with
// its id and its bytes: the package reads only this list, never a pack file.
//
// All of it may have been forged by a box, so the package checks everything itself. An
// object's bytes must hash to its id, and everything that the push names must be there. A
// tree must have the names and modes that the keeper itself writes, and no large file that
// the history does not have. A commit must say nothing of itself that only checkpoints say.
// Nothing is written before everything was checked, and then beside the store: a push that
// is refused or conflicts later leaves nothing in a history of which nothing is removed.
//
// It moves no ref and changes no file: that is a publish, which has the pushed commit as a
// second parent beside the checkpoint before it.
package pushed
