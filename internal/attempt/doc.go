// Package attempt is the state machine of one attempt at a task: which states
// there are, which may follow which, what an event makes of a state, and what
// is to be done in it. It is pure: it is folded from the log and does nothing.
// internal/dispatch does what Next says and appends the event of each
// transition; after a crash it folds the log and does what Next says again.
package attempt
