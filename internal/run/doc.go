// Package run is what the events of a run mean: one pure reducer in the log's
// order. The dispatcher keeps its runs with it while they go on and folds them
// with it after a crash; the state's tables of runs and tasks are written by it
// (Head, TaskHead); the desktop's reducer is held against it by the cases in
// testdata, which all of them pass.
package run
