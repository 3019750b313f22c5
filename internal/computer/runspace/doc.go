// Package runspace is what the dispatcher asks of a computer, in the dispatcher's words:
// the workspace as tasks see it (overlays, merges, publishes, and the documents that they
// touch), the boxes of runs, their living documents, models, and what of the past a
// recovery needs. It decides nothing about runs; the dispatcher does.
package runspace
