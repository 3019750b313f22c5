// Package chaos kills choir and its boxes, at named points and at random, and compares what is
// there afterwards with what an outside witness was told. See docs/crash-points.md.
package chaos
