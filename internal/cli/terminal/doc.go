// Package terminal is how the command line shows things: text that a terminal
// obeys nothing of, tables, JSON, colours, and a line about what takes a while.
//
// What verbs show was written by models, by programs in boxes and by providers, so
// everything on its way to a terminal comes through here.
package terminal
