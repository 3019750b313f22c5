package slots

import (
	"context"
	"sync"
)

// Slots is a semaphore: it bounds how many work at the same time.
type Slots chan struct{}

// Slot is a holder's share of Slots. While the holder waits for a person, who may take a
// day, and none of its workers goes on, the slot is free for others.
type Slot struct {
	Slots Slots

	mu      sync.Mutex
	held    bool
	taking  chan struct{} // closed when the attempt to take a slot has ended; nil: there is none
	resting int           // how many wait for a person
	working int           // how many workers go on
}

// idle reports whether nobody needs the slot. The caller holds mu.
func (h *Slot) idle() bool { return h.resting > 0 && h.working == 0 }

// Take waits for a slot; it returns false if ctx ended first. If several callers want it at
// the same time, one waits for the slot and the others for that one.
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

// spare gives back a slot that nobody needs. The caller holds mu.
func (h *Slot) spare() {
	if h.held && h.idle() {
		<-h.Slots
		h.held = false
	}
}

// Give gives the slot back, if it is held.
func (h *Slot) Give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		<-h.Slots
	}
	h.held = false
}

// Join counts a worker that begins.
func (h *Slot) Join() { h.count(0, 1) }

// Leave counts a worker that has ended.
func (h *Slot) Leave() { h.count(0, -1) }

func (h *Slot) count(resting, working int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting += resting
	h.working += working
	h.spare()
}

// Rest calls wait, during which the slot is free for others unless a worker goes on, and
// takes the slot again unless ctx has ended.
func (h *Slot) Rest(ctx context.Context, wait func() error) error {
	return h.apart(ctx, 0, wait)
}

// RestWorker is Rest for a worker, who does not count as going on while it waits.
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

// Rests reports whether nobody needs the slot.
func (h *Slot) Rests() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle()
}
