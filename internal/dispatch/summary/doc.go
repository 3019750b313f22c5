// Package summary is what a run's events come to, told from them alone: how its loops
// go on after a restart, what its document shows, and whether it did what was asked.
package summary
