// Package supervise keeps the long-lived goroutines of a machine and of its computers running: the
// parts of a tree. A part that fails or panics is restarted, after pauses that grow. One that
// fails too often within a time is given up: its tree is escalated, whose owner ends it and says
// why, or its owner goes on without it until it is started again. The process never ends by it.
package supervise
