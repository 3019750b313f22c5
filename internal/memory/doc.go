// Package memory is what people told a computer to keep: facts in their own words, each with the events that it
// came from. Nothing else writes them, so their bounds hold and a fact is forgotten with what follows from it.
package memory
