package document

import (
	"context"
	"sync"
)

// turns makes writers of one document wait for each other. Without it, whoever comes while
// another's revision is being synced would lose the compare-and-append again and again: the
// log refuses what was made on the revision before, and shows the new one only once it is
// acknowledged.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn // by document; those with a writer
}

type turn struct {
	free    chan struct{} // holds one token while nobody writes
	writers int           // who writes or waits, under turns.mu
}

// take waits until nobody else writes a document, and returns a function that ends the
// caller's turn. The only error is the context's.
func (t *turns) take(ctx context.Context, id string) (end func(), err error) {
	t.mu.Lock()
	mine := t.held[id]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		mine.free <- struct{}{}
		if t.held == nil {
			t.held = map[string]*turn{}
		}
		t.held[id] = mine
	}
	mine.writers++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.writers--; mine.writers == 0 {
			delete(t.held, id)
		}
	}
	select {
	case <-mine.free:
		return func() { mine.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
