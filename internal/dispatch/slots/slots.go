package slots

import (
	"context"
	"sync"
)

// Slots bounds how many go on at the same time.
type Slots chan struct{}

// Place is one's place among those that go on. It is given back while its
// holder waits for a person, who may take a day, and none of its workers goes
// on without one.
type Place struct {
	Slots Slots

	mu      sync.Mutex
	held    bool
	taking  chan struct{} // closed when a place was taken, or was not
	resting int           // who waits for a person
	working int           // whose work goes on meanwhile
}

// idle reports whether nobody needs the place. mu is held.
func (h *Place) idle() bool { return h.resting > 0 && h.working == 0 }

// Take waits for a place; false: ctx ended first. Of several who want it at the
// same time one waits for it and the others for that one.
func (h *Place) Take(ctx context.Context) bool {
	for {
		h.mu.Lock()
		if h.held || h.idle() && h.taking == nil {
			h.mu.Unlock()
			return true
		}
		other := h.taking
		if other == nil {
			h.taking = make(chan struct{})
			h.mu.Unlock()
			return h.wait(ctx)
		}
		h.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return false
		}
	}
}

func (h *Place) wait(ctx context.Context) bool {
	ok := false
	select {
	case h.Slots <- struct{}{}:
		ok = true
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.taking)
	h.taking, h.held = nil, ok
	h.spare()
	return ok
}

// spare gives back a place that nobody needs. mu is held.
func (h *Place) spare() {
	if h.held && h.idle() {
		<-h.Slots
		h.held = false
	}
}

// Give gives the place back, if there is one.
func (h *Place) Give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		<-h.Slots
	}
	h.held = false
}

// Join says that a worker goes on.
func (h *Place) Join() { h.count(0, 1) }

// Leave says that a worker has ended.
func (h *Place) Leave() { h.count(0, -1) }

func (h *Place) count(resting, working int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting += resting
	h.working += working
	h.spare()
}

// Rest waits without the place, unless a worker goes on in it, and returns with
// it unless ctx has ended.
func (h *Place) Rest(ctx context.Context, wait func() error) error {
	return h.apart(ctx, 0, wait)
}

// RestWorker is rest for a worker.
func (h *Place) RestWorker(ctx context.Context, wait func() error) error {
	return h.apart(ctx, 1, wait)
}

func (h *Place) apart(ctx context.Context, worker int, wait func() error) error {
	h.count(1, -worker)
	err := wait()
	h.count(-1, worker)
	if !h.Take(ctx) && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// Rests reports whether nobody needs the place.
func (h *Place) Rests() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle()
}
