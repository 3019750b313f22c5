package slots

import (
	"context"
	"sync"
)

// Slots bounds how many go on at the same time.
type Slots chan struct{}

// Slot is a holder's share of Slots. While the holder waits for a person, who may take
// a day, and none of its workers goes on, the slot is given to somebody else.
type Slot struct {
	Slots Slots

	mu      sync.Mutex
	held    bool
	taking  chan struct{} // closed when a place was taken, or was not
	resting int           // who waits for a person
	working int           // whose work goes on meanwhile
}

// idle reports whether nobody needs the place. mu is held.
func (h *Slot) idle() bool { return h.resting > 0 && h.working == 0 }

// Take waits for a place; false: ctx ended first. Of several who want it at the
// same time one waits for it and the others for that one.
func (h *Slot) Take(ctx context.Context) bool {
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

func (h *Slot) wait(ctx context.Context) bool {
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
func (h *Slot) spare() {
	if h.held && h.idle() {
		<-h.Slots
		h.held = false
	}
}

// Give gives the place back, if there is one.
func (h *Slot) Give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		<-h.Slots
	}
	h.held = false
}

// Join says that a worker goes on.
func (h *Slot) Join() { h.count(0, 1) }

// Leave says that a worker has ended.
func (h *Slot) Leave() { h.count(0, -1) }

func (h *Slot) count(resting, working int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting += resting
	h.working += working
	h.spare()
}

// Rest waits without the place, unless a worker goes on in it, and returns with
// it unless ctx has ended.
func (h *Slot) Rest(ctx context.Context, wait func() error) error {
	return h.apart(ctx, 0, wait)
}

// RestWorker is rest for a worker.
func (h *Slot) RestWorker(ctx context.Context, wait func() error) error {
	return h.apart(ctx, 1, wait)
}

func (h *Slot) apart(ctx context.Context, worker int, wait func() error) error {
	h.count(1, -worker)
	err := wait()
	h.count(-1, worker)
	if !h.Take(ctx) && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// Rests reports whether nobody needs the place.
func (h *Slot) Rests() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle()
}
