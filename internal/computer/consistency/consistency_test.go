package consistency

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
)

// TestOnlyAHurtHistoryIsGivenUp shows that only damage of the history itself is a reason to set it
// aside.
func TestOnlyAHurtHistoryIsGivenUp(t *testing.T) {
	damaged := func(err error) error { return fault.Wrap("wake", fault.New("", fault.Damaged, "Recover it.", err)) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"an event that is missing": {damaged(errors.New("event 5 is missing")), false},
		"the history":              {errors.Join(damaged(ofHistory{errors.New("it ends at nothing")}), errors.New("it did not close")), true},
		"nothing":                  {nil, false},
	} {
		if got := IsHistoryDamage(c.err); got != c.want {
			t.Errorf("%s: the histories %v are given up", name, got)
		}
	}
}

// TestWhatWasNotLookedAtIsNoDamage shows that a part that could not be read, for example because no
// more files can be opened, does not count as damaged.
func TestWhatWasNotLookedAtIsNoDamage(t *testing.T) {
	v := historyAt(t, t.TempDir())
	var old, few unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few = old
	few.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := v.History(t.Context())
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "ulimit") {
		t.Errorf("with no files to open the history is %v (%s)", err, fault.CodeOf(err))
	}
}
