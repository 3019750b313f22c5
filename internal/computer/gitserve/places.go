package gitserve

import (
	"context"
	"errors"
	"sync"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
)

// slots limits how many requests are answered at once, in all and for one account: a client
// that sends or reads slowly delays only requests of its own account.
type slots struct {
	most, ofOne int

	mu    sync.Mutex
	taken int
	of    map[string]int
	freed chan struct{} // closed when a slot is freed
}

func newPlaces(most, ofOne int) *slots {
	return &slots{most: most, ofOne: ofOne, of: map[string]int{}, freed: make(chan struct{})}
}

// take waits for a slot.
func (p *slots) take(ctx context.Context, account string) (release func(), err error) {
	wait, cancel := awake.WithTimeout(ctx, patience)
	defer cancel()
	for {
		taken, freed := p.try(account)
		if taken {
			return func() { p.give(account) }, nil
		}
		select {
		case <-freed:
		case <-wait.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fault.New("", fault.Unavailable, "Try again in a moment.", errors.New("too many are asking this computer for repositories"))
		}
	}
}

// try takes a slot if there is one; freed is closed when the next slot is freed.
func (p *slots) try(account string) (taken bool, freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.of[account] >= p.ofOne {
		return false, p.freed
	}
	p.taken++
	p.of[account]++
	return true, nil
}

func (p *slots) give(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[account]--; p.of[account] == 0 {
		delete(p.of, account)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
