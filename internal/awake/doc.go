// Package awake measures time in which this process ran. A process that was stopped
// (SIGSTOP, Ctrl-Z, a frozen box), or whose machine was suspended, can't receive what it
// waits for. The timers and deadlines of this package count only running time, so they do
// not expire because of such a gap, and functions can be called with the length of each
// gap.
package awake
