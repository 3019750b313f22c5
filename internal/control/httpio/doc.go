// Package httpio reads and writes HTTP bodies: each is bounded in size, a client that
// stalls is disconnected, and a stream that fails midway is cut off.
package httpio
