// Package awake measures time in which this process ran. A process that was
// stopped (SIGSTOP, Ctrl-Z, a frozen box) or whose machine was suspended stood
// still meanwhile: nothing it waited for could come. Patience that is measured
// here does not end by that: timers and deadlines count running time only, and
// whoever wants to know is told how long the process stood still.
package awake
