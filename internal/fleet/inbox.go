package fleet

import (
	"context"
	"errors"
	"io/fs"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	things "choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/view"
)

// Waiting implements control.Computers. Of a computer that sleeps its state is read once.
func (fl *Fleet) Waiting(ctx context.Context, cids []contract.CID) ([]view.Waiting, error) {
	wanted := make(map[contract.CID]bool, len(cids))
	for _, cid := range cids {
		wanted[cid] = true
	}
	fl.mu.Lock()
	order := append([]contract.CID(nil), fl.order...)
	fl.mu.Unlock()
	out := []view.Waiting{}
	for _, cid := range order {
		if !wanted[cid] {
			continue
		}
		waits, err := fl.waiting(ctx, cid)
		if err != nil {
			return nil, err
		}
		out = append(out, waits...)
	}
	return out, nil
}

func (fl *Fleet) waiting(ctx context.Context, cid contract.CID) ([]view.Waiting, error) {
	fl.mu.Lock()
	p := fl.find(cid)
	if p == nil {
		fl.mu.Unlock()
		return nil, nil
	}
	if c := p.computer; p.state == view.StateAwake {
		p.uses++
		fl.mu.Unlock()
		return fl.asked(ctx, p, c)
	}
	busy, _ := p.busy()
	if waits := p.waits; waits != nil || busy != nil || p.state != view.StateAsleep || fl.closed.Load() {
		fl.mu.Unlock()
		return waits, nil // what is busy is asked for soon again
	}
	through, name := make(chan struct{}), p.name
	p.apart = through
	fl.closing.Add(1)
	fl.mu.Unlock()
	defer fl.closing.Done()
	waits, err := things.ReadWaiting(ctx, cid, name, fl.Dir.Computer(cid, "state.sqlite"))
	fl.mu.Lock()
	defer fl.mu.Unlock()
	p.apart = nil
	close(through)
	switch {
	case err == nil:
		p.waits = waits
	case ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, fs.ErrNotExist):
		// Whoever wakes it is told; the others' inbox does not depend on it.
		fl.Logger.Warn("what of a sleeping computer waits for somebody could not be read", "computer", string(cid), "error", err)
		p.waits = []view.Waiting{}
	default:
		p.waits = []view.Waiting{}
	}
	return p.waits, nil
}

// asked asks a computer that is awake. That it is looked at keeps none awake.
func (fl *Fleet) asked(ctx context.Context, p *place, c *computer.Computer) ([]view.Waiting, error) {
	defer func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		p.uses--
	}()
	return c.Waiting(ctx)
}
