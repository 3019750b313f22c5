package upkeep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestABusyComputerIsScrubbedSoonAfter shows that a slice for which the computer is too busy
// is not put off until the next one is due: whether it is still busy is asked again soon.
func TestABusyComputerIsScrubbedSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		u := New(Options{Busy: func() bool { asked++; return true }})
		ctx, cancel := context.WithTimeout(t.Context(), scrubEvery-time.Second)
		defer cancel()
		if err := u.Scrub(ctx); err != nil {
			t.Fatal(err)
		}
		if want := int((scrubEvery - time.Second) / scrubSoon); asked != want {
			t.Errorf("it was asked %d times before the next slice would be due, not %d", asked, want)
		}
	})
}
