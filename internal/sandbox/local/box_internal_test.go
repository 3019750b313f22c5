package local

import (
	"errors"
	"testing"
	"testing/synctest"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// TestKillSaysWhatABoxThatIsNotGoneEndsWith shows that a box that the kernel has not ended yet is
// told of with the reason for which it is ended: the first one, not that it was killed as well.
func TestKillSaysWhatABoxThatIsNotGoneEndsWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{spec: sandbox.BoxSpec{ID: "b"}, pidfd: -1, done: make(chan struct{})}
		b.end(sandbox.Shared, "it used up the epoll watches")
		err := b.Kill()
		var ended *sandbox.EndedError
		if !fault.Is(err, fault.Timeout) || !errors.As(err, &ended) || ended.Reason != sandbox.Shared {
			t.Errorf("it says %v", err)
		}
	})
}
