package choirtest

import (
	"os"
	"testing"
)

// guest is the program that every process of a box descends from. Nothing can be put over it, and a
// machine has none at this place.
const guest = "/run/choir/choir"

// InBox reports whether the test runs in a box.
func InBox() bool {
	_, err := os.Stat(guest)
	return err == nil
}

// NotInBox skips a test in a box, and says what the test needs that no box has. On a machine it does
// nothing: what is missing there can be installed, and the test is to fail without it.
func NotInBox(t testing.TB, needs string) {
	t.Helper()
	if InBox() {
		t.Skip("this runs in a box, where there is no " + needs)
	}
}
