package fleet

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer"
	things "choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// askMost bounds how long one computer is waited for: the others' inbox does not wait for one that stands still.
const (
	askMost     = 3 * time.Second
	askedAtOnce = 16 // so that many that stand still take together as long as one
)

// Waiting implements control.Computers. Of a computer that sleeps its state is read once. One that can't be asked is
// named, with the reason.
func (fl *Fleet) Waiting(ctx context.Context, cids []contract.CID) ([]view.Waiting, error) {
	wanted := make(map[contract.CID]bool, len(cids))
	for _, cid := range cids {
		wanted[cid] = true
	}
	fl.mu.Lock()
	order := append([]contract.CID(nil), fl.order...)
	fl.mu.Unlock()
	order = slices.DeleteFunc(order, func(cid contract.CID) bool { return !wanted[cid] })
	return inboxOf(ctx, order, askMost, fl.waiting, func(cid contract.CID, err error) view.Waiting {
		fl.Logger.Warn("a computer could not be asked what of it waits for somebody", "computer", string(cid), "error", err)
		return view.Waiting{Computer: cid, Name: fl.nameOf(cid), Kind: view.WaitsUnknown, Reason: contract.Clip(fault.Text(err), 500)}
	})
}

// inboxOf asks computers, askedAtOnce at the same time, each for at most so long; what they say stands in their order. What
// is listed of one that can't be asked, unasked says.
func inboxOf(ctx context.Context, cids []contract.CID, most time.Duration, ask func(context.Context, contract.CID) ([]view.Waiting, error), unasked func(contract.CID, error) view.Waiting) ([]view.Waiting, error) {
	each := make([][]view.Waiting, len(cids))
	var all errgroup.Group
	all.SetLimit(askedAtOnce)
	for i, cid := range cids {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil // who asked has gone
			}
			timed, cancel := awake.WithTimeout(ctx, most)
			defer cancel()
			err := supervise.Safely(func() (err error) {
				each[i], err = ask(timed, cid)
				return err
			})
			if err != nil && ctx.Err() == nil {
				each[i] = []view.Waiting{unasked(cid, err)}
			}
			return nil
		})
	}
	_ = all.Wait() // there is none
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat([]view.Waiting{}, slices.Concat(each...)), nil
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
