package computer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// How long is waited before a computer that does not wake is tried again by
// itself the first time, each wait being twice the one before up to a bound, and
// how long it must have been awake for its next failure to be a first one. How
// often it is tried is runtime.wake_tries.
const (
	wakeAgain  = 2 * time.Second
	wakeMost   = 10 * time.Minute
	wakeSteady = 10 * time.Minute
)

// retry has a place that failed tried again after a while: what kept it from
// waking may pass by itself. h.mu is held.
func (h *Host) retry(p *place) {
	if p.next = (time.Time{}); h.closed.Load() || p.tries >= h.Config.Runtime.WakeTries {
		return
	}
	wait := min(wakeAgain<<min(p.tries, 20), wakeMost)
	p.tries++
	p.next = time.Now().Add(wait)
	round := p.round
	h.waking.Go(func() {
		for timer := time.NewTimer(wait); ; timer.Reset(time.Second) {
			select {
			case <-h.ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			h.mu.Lock()
			mine, busy := p.round == round && p.state == view.StateFailed, p.apart != nil || p.closing != nil
			h.mu.Unlock()
			if !mine {
				return
			}
			if !busy {
				h.begin(p, view.WakeRequest{}, nil)
				return
			}
		}
	})
}

// History implements control.Computers: the history of a computer that is awake,
// or of one that does not wake and whose history can be opened by itself.
func (h *Host) History(ctx context.Context, cid contract.CID) (control.History, error) {
	ctx, cancel := context.WithTimeout(ctx, wakeWait)
	defer cancel()
	for {
		c, err := h.Get(ctx, cid)
		if err == nil {
			return c, nil
		}
		h.mu.Lock()
		p := h.places[cid]
		failed, waking := p != nil && p.state == view.StateFailed, p != nil && p.state == view.StateWaking
		h.mu.Unlock()
		switch {
		case failed:
			return past{h, p}, nil
		case !waking || ctx.Err() != nil:
			return nil, err
		}
		// It is just tried again.
	}
}

// past is the history of a computer that does not wake. Each of its methods
// opens what it needs and closes it again; none of the computer's runs goes on,
// and nobody looks at its desktop meanwhile.
type past struct {
	h *Host
	p *place
}

// apart calls f while nobody wakes the place, once who else does so is through.
func (v past) apart(ctx context.Context, f func(context.Context) error) error {
	h, p := v.h, v.p
	h.mu.Lock()
	for p.apart != nil {
		through := p.apart
		h.mu.Unlock()
		select {
		case <-through:
		case <-ctx.Done():
			return fault.Wrap("computer.History", context.Cause(ctx))
		}
		h.mu.Lock()
	}
	if h.closed.Load() || p.state != view.StateFailed || p.closing != nil {
		h.mu.Unlock()
		return fault.New("computer.History", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is just being woken or put to sleep", p.name))
	}
	through := make(chan struct{})
	p.apart = through
	h.falls.Add(1)
	h.mu.Unlock()
	defer h.falls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		p.apart, p.c = nil, nil
		close(through)
	}()
	return f(ctx)
}

// read calls f with what the computer's state says, which is up to its log.
// Nothing is written to the log.
func (v past) read(ctx context.Context, f func(context.Context, *Computer) error) error {
	return v.apart(ctx, func(ctx context.Context) (err error) {
		c := v.h.newComputer(ctx, v.p.cid)
		defer func() { err = errors.Join(err, c.Close()) }()
		if err := c.openState(ctx); err != nil {
			return fmt.Errorf("its log and state can't be opened either: %w", err)
		}
		return f(ctx, c)
	})
}

// open calls f with the computer's files and history, and nothing else of it.
func (v past) open(ctx context.Context, f func(context.Context, *Computer) error) error {
	return v.apart(ctx, func(ctx context.Context) (err error) {
		c := v.h.newComputer(ctx, v.p.cid)
		defer func() { err = errors.Join(err, c.Close()) }()
		if err := c.openHistory(ctx, v.p); err != nil {
			return fmt.Errorf("its files and checkpoints can't be opened either: %w", err)
		}
		return f(ctx, c)
	})
}

// Checkpoints answers rpc.CheckpointList.
func (v past) Checkpoints(ctx context.Context, before uint64, limit int) (list []view.Checkpoint, more bool, err error) {
	err = v.read(ctx, func(ctx context.Context, c *Computer) (err error) {
		list, more, err = c.Checkpoints(ctx, before, limit)
		return err
	})
	return list, more, err
}

// ShowCheckpoint answers rpc.CheckpointGet.
func (v past) ShowCheckpoint(ctx context.Context, id string) (k view.Checkpoint, err error) {
	err = v.read(ctx, func(ctx context.Context, c *Computer) (err error) {
		k, err = c.ShowCheckpoint(ctx, id)
		return err
	})
	return k, err
}

// Appended implements control.History.
func (v past) Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error) {
	err = v.read(ctx, func(ctx context.Context, c *Computer) (err error) {
		events, bytes, err = c.Appended(ctx, since)
		return err
	})
	return events, bytes, err
}

// Checkpoint answers rpc.CheckpointCreate.
func (v past) Checkpoint(ctx context.Context, user, message string) (k view.Checkpointed, err error) {
	err = v.open(ctx, func(ctx context.Context, c *Computer) error {
		k, err = c.Checkpoint(ctx, user, message)
		return err
	})
	return k, err
}

// Diff answers rpc.CheckpointDiff.
func (v past) Diff(ctx context.Context, r view.DiffRequest) (d view.Diff, err error) {
	err = v.open(ctx, func(ctx context.Context, c *Computer) error {
		d, err = c.Diff(ctx, r)
		return err
	})
	return d, err
}

// Restore answers rpc.CheckpointRestore. Once files went back, the computer is
// woken once more.
func (v past) Restore(ctx context.Context, r view.RestoreRequest) (done view.Restored, err error) {
	err = v.open(ctx, func(ctx context.Context, c *Computer) error {
		done, err = c.Restore(ctx, r)
		return err
	})
	if err == nil && !r.DryRun {
		err = v.h.Wake(ctx, v.p.cid, view.WakeRequest{})
	}
	return done, err
}
