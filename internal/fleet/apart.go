package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/computer/history"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// How long it takes until a computer that does not wake is tried again automatically for
// the first time (each wait is twice the one before, up to a bound), and how long it must
// have been awake for its next failure to count as a first one again. How often it is tried
// is runtime.wake_tries.
const (
	wakeAgain  = 2 * time.Second
	wakeMost   = 10 * time.Minute
	wakeSteady = 10 * time.Minute
)

// retry schedules another try to wake a place that failed, for the cause may pass by
// itself. fl.mu is held.
func (fl *Fleet) retry(p *place) {
	if p.next = (time.Time{}); fl.closed.Load() || p.tries >= fl.Config.Runtime.WakeTries {
		return
	}
	wait := min(wakeAgain<<min(p.tries, 20), wakeMost)
	p.tries++
	p.next = time.Now().Add(wait)
	round := p.round
	fl.waking.Go(func() {
		for timer := time.NewTimer(wait); ; timer.Reset(time.Second) {
			select {
			case <-fl.ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			fl.mu.Lock()
			mine, busy := p.round == round && p.state == view.StateFailed, p.apart != nil || p.closing != nil
			fl.mu.Unlock()
			if !mine {
				return
			}
			if !busy {
				fl.begin(p, view.WakeRequest{}, nil)
				return
			}
		}
	})
}

// History implements control.Computers: the history of a computer that is awake, or
// of one that is asleep or does not wake and whose log and history can be opened by
// themselves.
func (fl *Fleet) History(ctx context.Context, cid contract.CID) (control.History, error) {
	waits, cancel := context.WithTimeout(ctx, wakeWait)
	defer cancel()
	for {
		fl.mu.Lock()
		p := fl.find(cid)
		asleep := p != nil && p.state == view.StateAsleep && p.err == nil && !fl.closed.Load()
		fl.mu.Unlock()
		if asleep {
			return past{fl, p}, nil
		}
		c, err := fl.awake(ctx, cid)
		if err == nil {
			return c, nil
		}
		fl.mu.Lock()
		failed, waking := p != nil && p.state == view.StateFailed, p != nil && p.state == view.StateWaking
		fl.mu.Unlock()
		switch {
		case failed:
			return past{fl, p}, nil
		case !waking || waits.Err() != nil:
			return nil, err
		}
		// It is being tried again.
	}
}

// past is the history of a computer that is not awake. Each of its methods opens what it
// needs and closes it again; meanwhile none of the computer's runs goes on, and its desktop
// is not shown. What needs more than log and state wakes a computer that only sleeps.
type past struct {
	fleet *Fleet
	place *place
}

// Methods implements control.History.
func (v past) Methods() rpc.Table {
	t := rpc.Table{}
	history.Bind(t, v, func(ctx context.Context) (string, error) {
		c, err := v.fleet.Get(ctx, v.place.cid) // the error says why it is not awake
		if err != nil {
			return "", err
		}
		f, err := c.Frame(ctx)
		return f.Desktop.LastGood, err
	})
	return t
}

// errWoken says that a computer that was to be opened apart is awake, or waking.
var errWoken = errors.New("it is just being woken")

// asleep says whether the computer only sleeps, so that it can be woken.
func (v past) asleep() bool {
	v.fleet.mu.Lock()
	defer v.fleet.mu.Unlock()
	return v.place.err == nil
}

// apart calls f while nobody wakes the place. It waits for others who do the same, and
// until the computer has fallen asleep.
func (v past) apart(ctx context.Context, f func(context.Context) error) error {
	fl, p := v.fleet, v.place
	fl.mu.Lock()
	for p.state != view.StateWaking {
		busy, _ := p.busy()
		if busy == nil {
			break
		}
		fl.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return fault.Wrap("computer.History", context.Cause(ctx))
		}
		fl.mu.Lock()
	}
	if fl.closed.Load() || p.state != view.StateFailed && p.state != view.StateAsleep {
		name := p.name
		fl.mu.Unlock()
		return fault.New("computer.History", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s: %w", name, errWoken))
	}
	through := make(chan struct{})
	p.apart = through
	fl.closing.Add(1)
	fl.mu.Unlock()
	defer fl.closing.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(fl.ctx, cancel)()
	defer func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		p.apart, p.computer, p.used = nil, nil, time.Now()
		close(through)
	}()
	if err := fl.inspectAgain(ctx, p); err != nil {
		fl.noteDamageAsleep(p, err)
		return err
	}
	return f(ctx)
}

// read calls f with the computer's log and state, which is brought up to the log.
func (v past) read(ctx context.Context, f func(context.Context, *computer.Computer) error) error {
	err := v.apart(ctx, func(ctx context.Context) (err error) {
		c, err := v.fleet.machine.OpenState(ctx, v.place.cid)
		if err != nil {
			return fmt.Errorf("its log and state can't be opened either: %w", err)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return f(ctx, c)
	})
	if errors.Is(err, errWoken) && v.asleep() {
		return v.awake(ctx, f)
	}
	return err
}

// awake wakes the computer and calls f with it.
func (v past) awake(ctx context.Context, f func(context.Context, *computer.Computer) error) error {
	c, err := v.fleet.awake(ctx, v.place.cid)
	if err != nil {
		return err
	}
	return f(ctx, c)
}

// open calls f with the computer's files and history, and nothing else of it. A computer
// that only sleeps is woken for it.
func (v past) open(ctx context.Context, f func(context.Context, *computer.Computer) error) error {
	if v.asleep() {
		return v.awake(ctx, f)
	}
	return v.apart(ctx, func(ctx context.Context) (err error) {
		c, err := v.fleet.machine.OpenHistory(ctx, v.place.cid, computer.WakeOptions{Name: v.place.name, Opened: func(c *computer.Computer) { v.fleet.opened(v.place, c) }})
		if err != nil {
			return fmt.Errorf("its files and checkpoints can't be opened either: %w", err)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return f(ctx, c)
	})
}

// Checkpoints answers rpc.CheckpointList.
func (v past) Checkpoints(ctx context.Context, before uint64, limit int) (list []view.Checkpoint, more bool, err error) {
	err = v.read(ctx, func(ctx context.Context, c *computer.Computer) (err error) {
		list, more, err = c.Checkpoints(ctx, before, limit)
		return err
	})
	return list, more, err
}

// ShowCheckpoint answers rpc.CheckpointGet.
func (v past) ShowCheckpoint(ctx context.Context, id string) (k view.Checkpoint, err error) {
	err = v.read(ctx, func(ctx context.Context, c *computer.Computer) (err error) {
		k, err = c.ShowCheckpoint(ctx, id)
		return err
	})
	return k, err
}

// Appended implements control.History.
func (v past) Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error) {
	err = v.read(ctx, func(ctx context.Context, c *computer.Computer) (err error) {
		events, bytes, err = c.Appended(ctx, since)
		return err
	})
	return events, bytes, err
}

// Events implements control.History.
func (v past) Events(ctx context.Context, q view.EventQuery) (page view.EventPage, err error) {
	err = v.read(ctx, func(ctx context.Context, c *computer.Computer) (err error) {
		page, err = c.Events(ctx, q)
		return err
	})
	return page, err
}

// Checkpoint answers rpc.CheckpointCreate.
func (v past) Checkpoint(ctx context.Context, by contract.Actor, message string) (k view.Checkpointed, err error) {
	err = v.open(ctx, func(ctx context.Context, c *computer.Computer) error {
		k, err = c.Checkpoint(ctx, by, message)
		return err
	})
	return k, err
}

// Diff answers rpc.CheckpointDiff.
func (v past) Diff(ctx context.Context, r view.DiffRequest) (d view.Diff, err error) {
	err = v.open(ctx, func(ctx context.Context, c *computer.Computer) error {
		d, err = c.Diff(ctx, r)
		return err
	})
	return d, err
}

// Restore answers rpc.CheckpointRestore. Once files went back, the computer is
// woken once more.
func (v past) Restore(ctx context.Context, r view.RestoreRequest) (done view.Restored, err error) {
	err = v.open(ctx, func(ctx context.Context, c *computer.Computer) error {
		done, err = c.Restore(ctx, r)
		return err
	})
	if err == nil && !r.DryRun {
		err = v.fleet.Wake(ctx, v.place.cid, view.WakeRequest{})
	}
	return done, err
}
