// Package summary derives from a run's events alone how its loops continue after a restart,
// what its document shows, and whether it did what was asked.
package summary
