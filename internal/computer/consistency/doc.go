// Package consistency holds the history of a computer's files against its log before
// either is written to. The two are written one after the other, and each can be
// restored from a backup or damaged alone: a history that is older than the log, newer
// than it, or another computer's is damage, and is named as such rather than built upon.
// What can be looked up without git is, for no box may be open yet: boxes write beside
// what is read here, so it is opened beneath the workspace and bounded.
package consistency
