// Package attempt is the state machine of one attempt at a task: which states there are,
// which may follow which, how an event changes the state, and what step comes next. It has
// no side effects: the state is computed from the log. internal/dispatch does what Next
// says and appends the event of each transition; after a crash it computes the state from
// the log and continues in the same way.
package attempt
