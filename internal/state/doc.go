// Package state is a computer's SQLite file: a projection of its log.
//
// One writer, the projector, applies events in order and in batches; the sequence it has
// reached is written in the same transaction, so each event has its effect exactly once. An
// event that can't be projected is kept in the events table with the reason, and projection
// goes on. Everything in the file can be dropped and replayed from the log, which is the
// authority.
package state
