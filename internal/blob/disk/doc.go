// Package disk keeps blobs in a directory of this machine.
package disk
