// Package run says what the events of a run mean: one pure reducer in the log's order. The
// dispatcher keeps its runs with it while they go on and rebuilds them with it after a
// crash; the state's tables of runs and tasks are written with it (Head, TaskHead); the
// desktop's reducer is tested against the cases in testdata, which all of them pass.
package run
