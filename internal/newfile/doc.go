// Package newfile makes what is new on a disk whole: built aside without a sync
// for each of its parts, made durable by one, and then given its name, so that a
// power cut leaves nothing or all of it.
package newfile
