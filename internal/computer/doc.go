// Package computer is the wiring of one awake computer: it opens the log, the state, the
// boxes, the keeper's workspace, the shell and the dispatcher in their order, hands each
// what it needs of the others, and closes them again. What is asked of a computer its
// parts answer, packages below this one, of which Computer embeds those that the control
// plane asks. Machine is what it shares with the others of its machine; it knows none of
// them.
package computer
