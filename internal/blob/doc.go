// Package blob holds content by its hash: what is too large for an event, what
// tools printed, what users uploaded. Each computer has its own namespace and
// quota, so that deleting a computer is deleting its content. Where it lies is a
// backend's, each in a folder of its own.
package blob
