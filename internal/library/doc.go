// Package library decides what a citation is: whether a source says the words that are quoted, how a document
// cites them, and whether all that a document cites is there.
package library
