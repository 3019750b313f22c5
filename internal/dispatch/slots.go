package dispatch

import (
	"context"
	"sync"
)

// slots bounds how many go on at the same time.
type slots chan struct{}

// hold is one's place among those that go on. It is given back while its
// holder waits for a person, who may take a day.
type hold struct {
	slots slots

	mu      sync.Mutex
	held    bool
	resting int
}

// take waits for a place; false: ctx ended first.
func (h *hold) take(ctx context.Context) bool {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		<-h.slots // two rests ended at the same time
	}
	h.held = true
	return true
}

// give gives the place back, if there is one.
func (h *hold) give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		<-h.slots
	}
	h.held = false
}

// rest waits without the place, and returns with it unless ctx has ended.
func (h *hold) rest(ctx context.Context, wait func() error) error {
	h.mu.Lock()
	h.resting++
	h.mu.Unlock()
	h.give()
	err := wait()
	h.mu.Lock()
	h.resting--
	last := h.resting == 0
	h.mu.Unlock()
	if last && !h.take(ctx) && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (h *hold) rests() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resting > 0
}
