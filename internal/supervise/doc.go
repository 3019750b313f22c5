// Package supervise keeps the long-lived goroutines of one computer running. A service that
// fails or panics is restarted, with a pause after repeated failures. If it keeps failing,
// this does not end the process but only the tree of services: the tree's owner puts that
// one computer to sleep and reports why.
package supervise
