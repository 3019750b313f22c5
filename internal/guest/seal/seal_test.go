package seal

import (
	"slices"
	"testing"
)

// TestAGuestHasAllProcessors: what makes the stage begin sooner is not handed on, and all else is.
func TestAGuestHasAllProcessors(t *testing.T) {
	got := handedOn([]string{"PWD=/", Procs + "=" + One, Procs, "A" + Procs + "=1", Procs + "X=1", ""})
	if want := []string{"PWD=/", Procs, "A" + Procs + "=1", Procs + "X=1", ""}; !slices.Equal(got, want) {
		t.Errorf("the guest has %q, want %q", got, want)
	}
}
