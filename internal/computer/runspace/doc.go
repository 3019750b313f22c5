// Package runspace implements the dispatcher's interfaces on a computer: the workspace as
// tasks see it (overlays, merges, publishes, and the documents that they touch), the boxes
// of runs, their living documents, models, and the events of the past that a recovery
// needs. It decides nothing about runs; the dispatcher does.
package runspace
