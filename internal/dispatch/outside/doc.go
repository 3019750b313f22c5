// Package outside makes the calls of an attempt that change something outside of the computer: each is in the log before it
// leaves, ends there once, and is not made a second time while nobody knows what came of the first.
package outside
