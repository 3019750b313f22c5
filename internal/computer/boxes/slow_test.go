package boxes

import (
	"context"
	"errors"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// TestABoxOnASlowDiskIsWaitedFor shows that when the driver does not end a box in time, the caller
// waits for it, but not beyond the caller's own deadline.
func TestABoxOnASlowDiskIsWaitedFor(t *testing.T) {
	b := &slowBox{done: make(chan struct{}), asked: make(chan struct{}, 10)}
	ended := make(chan error, 1)
	go func() { ended <- End(t.Context(), &Terminal{Box: b}) }()
	<-b.asked
	close(b.done)
	if err := <-ended; err != nil {
		t.Errorf("a box that went late: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	b = &slowBox{done: make(chan struct{}), asked: make(chan struct{}, 10)}
	go func() { ended <- End(ctx, &Terminal{Box: b}) }()
	<-b.asked
	cancel()
	if err := <-ended; !fault.Is(err, fault.Timeout) {
		t.Errorf("a box that never goes: %v", err)
	}
}

// slowBox ends when the test says so.
type slowBox struct {
	sandbox.Box
	done  chan struct{}
	asked chan struct{}
}

func (b *slowBox) Done() <-chan struct{} { return b.done }

func (b *slowBox) Kill() error {
	b.asked <- struct{}{}
	select {
	case <-b.done:
		return nil
	default:
		return fault.New("", fault.Timeout, "", errors.New("it is still not gone"))
	}
}
