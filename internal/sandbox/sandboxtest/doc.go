// Package sandboxtest holds what tests of boxes share: the conformance suite
// that every driver passes, and a guest binary built for the test.
package sandboxtest
