// Package chosen tells what a task's tree changes, hunk by hunk, and makes the tree that has only
// those changes that a person has chosen of it. Both compare the same two trees in the same way,
// so that a hunk has the same id wherever it is asked for; one that is not there is an error.
package chosen
