// Package pushed takes what stock git pushes into the history of a computer's own files
// into its store. A box of the push's own has had git check it, and names each object with
// its bytes: a list, which is all that is read here, without a pack.
//
// What holds of it: all of it may have been written by a box. An object is what its bytes
// hash to; of what the push names everything is there; a tree has the names and modes that
// the keeper itself writes, and no large file that the history does not have; a commit says
// nothing of itself that only checkpoints say. Nothing is written before all was looked at.
//
// It moves no ref and changes no file: that is a publish, which has the commit that was
// pushed as a parent beside the checkpoint before it.
package pushed
