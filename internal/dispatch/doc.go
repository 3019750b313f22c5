// Package dispatch gives tasks to boxes. It runs on the host: it owns every run
// from its prompt to its report, opens the boxes its loops and tasks live in,
// forwards tool calls, publishes what verified and takes back what did not, and
// accepts exactly one result per attempt.
//
// What a run is, it knows from the log alone (`internal/run`): after a crash Recover
// goes on from there. Nothing that a loop or a task says is believed beyond
// what it may decide: the host knows what ran, what changed and what verified.
package dispatch
