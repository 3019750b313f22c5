// Package dispatch carries out runs. It works on the host: it owns every run from its prompt to its
// report, opens the boxes in which loops and tasks run, forwards tool calls, publishes what was verified
// and takes back what was not, and accepts exactly one result per attempt.
//
// It knows the state of a run from the log alone (`internal/run`), so after a crash Recover continues
// from there. Reports of a loop or a task are believed only where they may decide: the host itself knows
// what ran, what changed and what was verified.
package dispatch
