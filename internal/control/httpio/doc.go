// Package httpio is the bodies of HTTP: each is bounded, none may stall for long,
// and what is streamed is cut off where it fails.
package httpio
