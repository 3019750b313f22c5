// Package harness is the one while-loop that drives a model with tools. Both
// loops of the computer, Director and Associate, are this loop with other
// tools and another context.
//
// What was said is never rewritten: each request is the one before with something
// at its end, so that services keep its beginning, until a compaction puts a
// summary and what the host's log knows in the place of older turns. What a
// model writes is untrusted: it is bounded, repaired into a form that can be
// recorded, and checked against the tool's schema before anything runs.
//
// The loop ends by a tool that says so, by a budget, by repetition, by silence,
// by an error that does not pass, or by its context; Outcome says which.
package harness
