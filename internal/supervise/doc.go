// Package supervise keeps the long-lived goroutines of one computer going. A
// service that fails or panics is started again, after ever longer pauses; one
// that goes on failing ends not the process but its tree, whose owner puts that
// one computer to sleep and says why.
package supervise
