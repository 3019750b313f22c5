// Package consistency compares the history of a computer's files with its log before either
// is written to. The two are written one after the other, and each can be restored from a
// backup or damaged alone: a history that is older or newer than the log, or another
// computer's, is damage, and is reported rather than built upon. As much as possible is
// read without git, since no box may be open yet. Boxes wrote what is read, so it is opened
// beneath the workspace and bounded.
package consistency
