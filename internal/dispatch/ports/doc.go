// Package ports declares what the dispatcher and its parts need of the rest of a computer:
// the log, boxes, the workspace, documents, models and the network, each as a small
// interface with the values that cross it. The code that assembles a computer implements
// them.
package ports
