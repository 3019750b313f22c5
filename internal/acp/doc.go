// Package acp is a client of the Agent Client Protocol: it has an agent program do a turn of work over two ends
// of a pipe. Nothing that the program sends is trusted: lines, their number, texts and lists are bounded, what
// is not understood ends the connection with a sentence, and the program is offered nothing of the host's,
// neither files nor a terminal.
package acp
