package boxes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// flight is an installation under way, shared by everybody who waits for it. It runs in
// boxes of the computer that asked first, and ends with that one; whoever else waits then
// starts it again, and does so as well when it fails: what hindered one computer need not
// hinder another. It also ends when nobody waits for it any more.
type flight struct {
	boxes  *Boxes // of the computer that installs
	done   chan struct{}
	cancel context.CancelFunc

	// Guarded by the trees' mu; the result is not changed once done is closed.
	begun, ended bool
	waiting      int
	got          installed
	kept         bool // it existed, and was only checked
	again        bool // its computer fell asleep during it
	err          error
}

// made returns the tree of a key, in use until it is released. A tree that this process has
// not seen yet is checked, and make makes it if it does not exist or is damaged: once,
// whoever asks for it meanwhile. kept says that nothing was made for this caller.
func (t *trees) made(ctx context.Context, c *Boxes, turn chan struct{}, key string, make filler) (got installed, kept bool, err error) {
	if err := t.sweep(ctx, c.Volumes()); err != nil {
		return got, false, err
	}
	for {
		if got, err := t.hold(ctx, c.Volumes(), key); err == nil {
			return got, true, nil
		}
		if err := errors.Join(context.Cause(ctx), context.Cause(c.options.Awake)); err != nil {
			return got, false, err
		}
		if err := t.recentFailure(c.failing(key)); err != nil {
			return got, false, err
		}
		f, mine, err := t.join(ctx, c, turn, key, make)
		if err != nil {
			return got, false, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			t.leave(f, key)
			return got, false, context.Cause(ctx)
		}
		if f.err == nil || !f.again && (f.boxes == c || defence.Off(defence.SharedFailure)) {
			return f.got, f.kept || !mine, f.err
		}
	}
}

// join waits for a flight with the others, or begins one. A computer runs one flight at a
// time, whatever else it waits for.
func (t *trees) join(ctx context.Context, c *Boxes, turn chan struct{}, key string, make filler) (*flight, bool, error) {
	if f, mine := t.flying(key, nil); f != nil {
		return f, mine, nil
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	fctx, cancel := context.WithCancel(c.options.Awake)
	f, mine := t.flying(key, &flight{boxes: c, done: closing(), cancel: cancel})
	if !mine { // somebody began one meanwhile
		cancel()
		<-turn
		return f, false, nil
	}
	// Nothing is begun on a computer that closes; those who wait must be told.
	stop := context.AfterFunc(c.options.Awake, func() {
		if t.begin(f) {
			t.end(f, key, flight{again: true, err: context.Cause(c.options.Awake)})
		}
	})
	c.options.Once("an installation for checks", func(context.Context) error {
		defer func() { stop(); cancel(); <-turn }()
		if !t.begin(f) {
			return nil
		}
		came := flight{err: fault.New("boxes.dependencies", fault.Internal, "", errors.New("the installation broke off"))}
		defer func() { t.end(f, key, came) }() // also after a panic, for others wait
		got, kept, err := t.prepare(fctx, f, key, make)
		came = flight{got: got, kept: kept, err: err, again: err != nil && fctx.Err() != nil}
		return nil
	})
	return f, true, nil
}

// failing is the key under which this computer's failure is remembered; others try for
// themselves.
func (c *Boxes) failing(key string) string {
	if defence.Off(defence.SharedFailure) {
		return key
	}
	return string(c.options.CID) + " " + key
}

func closing() chan struct{} { return make(chan struct{}) }

// flying returns the flight of a key and counts the caller as waiting; if there is none,
// next becomes it, and mine is true.
func (t *trees) flying(key string, next *flight) (f *flight, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f = t.flights[key]
	if f == nil && next != nil {
		f, mine = next, true
		t.flights[key] = f
	}
	if f != nil {
		f.waiting++
	}
	return f, mine
}

// begin says whether the caller is the one to carry a flight out.
func (t *trees) begin(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !f.begun
	f.begun = true
	return first
}

// end gives the result to everybody who waits; they hold the tree from then on.
func (t *trees) end(f *flight, key string, came flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.ended, f.got, f.kept, f.again, f.err = true, came.got, came.kept, came.again, came.err
	switch {
	case f.err == nil:
		t.verified[key] = true
		if f.waiting > 0 {
			t.uses[key] += f.waiting
		}
	case !f.again:
		t.failed[f.boxes.failing(key)] = failedInstall{f.err, time.Now().Add(installAgain)}
	}
	if t.flights[key] == f {
		delete(t.flights, key)
	}
	close(f.done)
}

// leave stops waiting. A flight that nobody waits for ends, and nobody joins it any more.
func (t *trees) leave(f *flight, key string) {
	t.mu.Lock()
	if f.ended && f.err == nil {
		t.mu.Unlock()
		t.release(key)
		return
	}
	if f.waiting--; f.waiting == 0 && !f.ended {
		f.cancel()
		delete(t.flights, key)
	}
	t.mu.Unlock()
}

// prepare checks the tree of a key, and makes it if it does not exist or is damaged. A
// tree that can't be read for another reason may be whole, and stays.
func (t *trees) prepare(ctx context.Context, f *flight, key string, make filler) (got installed, kept bool, err error) {
	c := f.boxes
	v := c.Volumes()
	got, err = t.whole(ctx, v, key)
	if err == nil {
		return got, true, v.Touch(ctx, t.tree(key))
	}
	if ctx.Err() != nil {
		return got, false, context.Cause(ctx)
	}
	damaged := ""
	switch broken := (damagedTreeError{}); {
	case errors.As(err, &broken):
		gone, derr := t.drop(ctx, v, key, f)
		if derr != nil {
			return got, false, derr
		}
		if !gone { // it was whole when who uses it looked, or is another one by now
			if got, err := t.whole(ctx, v, key); err == nil {
				return got, true, nil
			}
			return got, false, fault.New("boxes.dependencies", fault.Unavailable, "Try again once the checks that use it have ended.", fmt.Errorf("what was kept of it is damaged, and in use: %w", err))
		}
		damaged = "what was kept of it was damaged, and was made anew"
		c.options.Logger.Warn("what was installed for checks is damaged and is made anew", "key", key, "error", fault.Text(err))
	case !errors.Is(err, fs.ErrNotExist):
		return got, false, err
	}
	got, err = t.fill(ctx, v, c.options.Logger, key, make)
	if err == nil && damaged != "" {
		got.Note = joined(damaged, got.Note)
	}
	return got, false, err
}

func joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// filler makes a tree and installs into it.
type filler func(ctx context.Context, tmp sandbox.Volume) (installed, error)
