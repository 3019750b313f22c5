// Package harness is the one while-loop that drives a model with tools. Both
// loops of the computer, Director and Associate, are this loop with other
// tools and another context.
//
// Each turn starts from compact, durable state (Options.Wake) and the newest
// turns that fit a hard byte limit, never from an ever-growing chat. What a
// model writes is untrusted: it is bounded, repaired into a form that can be
// recorded, and checked against the tool's schema before anything runs.
//
// The loop ends by a tool that says so, by a budget, by repetition, by silence,
// by an error that does not pass, or by its context; Outcome says which.
package harness
