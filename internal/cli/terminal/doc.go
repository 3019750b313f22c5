// Package terminal is how the command line shows things: text without anything that a
// terminal would obey, tables, JSON, colours, and progress.
//
// What verbs show was written by models, by programs in boxes and by providers, so all
// output to a terminal goes through this package.
package terminal
