// Package chaos kills choir and its boxes, at named points and at random, and
// holds what is there afterwards against what an outside witness was told.
// See docs/crash-points.md.
package chaos
