// Package computer is the wiring of one awake computer: it opens the log, the state, the
// boxes, the keeper's workspace, the shell and the dispatcher in their order, gives each
// what it needs of the others, and closes them again. The methods of a computer are
// answered by its parts, packages below this one, of which Computer embeds those that the
// control plane calls. Machine is what it shares with the others of its machine; it knows
// none of them.
package computer
