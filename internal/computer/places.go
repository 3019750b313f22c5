package computer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// place is one computer of the machine, awake or not. What is in it is guarded
// by the host's lock.
type place struct {
	cid   contract.CID
	name  string // as far as it is known before it wakes
	state view.ComputerState
	c     *Computer // from when its log is open; only a place that is awake gives it out
	err   error     // why it does not wake, or was put to sleep
	// failed is why its newest recovery did not succeed.
	failed error
	ended  chan struct{}
	// closing is the computer while it falls asleep: its boxes' last words still count.
	closing *Computer
	apart   chan struct{} // its history is open by itself, while it does not wake, until this is closed
	round   int           // counts its wakings
	tries   int           // how often it was tried again by itself
	next    time.Time     // when it is tried again; zero: not by itself
	since   time.Time     // it is awake
}

// wakeWait is how long somebody who asks for a computer waits while it wakes.
const wakeWait = 45 * time.Second

// Open begins to wake every computer of the data directory, each by itself, and
// returns at once; without one it makes the first. What keeps one from waking is
// that one's trouble.
func (h *Host) Open(ctx context.Context) error {
	cids := make([]contract.CID, 0, len(h.Report.Computers))
	for cid := range h.Report.Computers {
		cids = append(cids, cid)
	}
	slices.Sort(cids)
	fresh := len(cids) == 0 && h.Report.Usable()
	if fresh {
		cids = append(cids, contract.NewCID())
	}
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	h.lookAfter()
	for _, cid := range cids {
		p := &place{cid: cid, name: h.Report.Names[cid], state: view.StateAsleep}
		if p.name == "" {
			p.name = "Choir"
		}
		h.mu.Lock()
		h.places[cid] = p
		h.order = append(h.order, cid)
		h.mu.Unlock()
		if err := h.Report.Refusal(cid); err != nil {
			h.settle(p, nil, err)
			continue
		}
		h.begin(p, view.WakeRequest{}, nil)
	}
	return nil
}

// begin wakes a place in a goroutine of its own, unless it is awake or waking.
// What is given is done first, while nobody has the computer open.
func (h *Host) begin(p *place, req view.WakeRequest, first func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Load() || p.state == view.StateWaking || p.state == view.StateAwake || p.closing != nil || p.apart != nil {
		return // on its way, one way or the other
	}
	p.round++
	p.state, p.err, p.ended = view.StateWaking, nil, make(chan struct{})
	h.waking.Go(func() {
		c, err := h.wakeAlone(p, req, first)
		h.settle(p, c, err)
	})
}

// wakeAlone wakes a computer; a panic on the way is that computer's failure.
func (h *Host) wakeAlone(p *place, req view.WakeRequest, first func(context.Context) error) (c *Computer, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			h.Logger.Error("waking a computer panicked", "computer", string(p.cid), "panic", broken, "stack", string(debug.Stack()))
			c, err = nil, fault.New("", fault.Unavailable, "Try again, or open it without what its tasks left; the server's log has the details.", fmt.Errorf("something failed inside while it woke: %v", broken))
		}
	}()
	if first != nil {
		if err := first(h.ctx); err != nil {
			return nil, err
		}
	}
	return h.wake(h.ctx, p, req)
}

// settle records how waking ended, and what a computer that is awake has.
func (h *Host) settle(p *place, c *Computer, err error) {
	name, state, err := h.record(p, c, err)
	h.say(p.cid, name, state, err)
}

// say tells whoever wants to know how a computer is. The lock is not held: it may
// take a while.
func (h *Host) say(cid contract.CID, name string, state view.ComputerState, err error) {
	if h.Said != nil && h.ctx.Err() == nil {
		h.Said(cid, name, state, err)
	}
}

func (h *Host) record(p *place, c *Computer, err error) (string, view.ComputerState, error) {
	if c != nil {
		if merr := h.mark(p.cid); merr != nil {
			h.Logger.Warn("what the data directory has could not be written down", "error", merr)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != nil && p.err != nil {
		// Its services gave up while it woke.
		h.falls.Go(func() { h.lay(c) })
		c, err, p.closing = nil, p.err, c
	}
	p.c, p.err = c, err
	switch {
	case err == nil:
		p.state, p.since = view.StateAwake, time.Now()
	case fault.Is(err, fault.Damaged), h.refused(p.cid):
		p.state = view.StateDamaged
	default:
		p.state = view.StateFailed
		h.retry(p)
	}
	if err != nil && h.ctx.Err() == nil {
		h.Logger.Error("a computer does not wake", "computer", string(p.cid), "error", err)
	}
	if p.ended != nil {
		close(p.ended)
	}
	return p.name, p.state, err
}

// mark writes down what a computer that is awake has.
func (h *Host) mark(cid contract.CID) error {
	return h.Dir.Mark(cid)
}

// opened makes a computer that is still waking known to what it has begun
// itself: its runs meter and ask for the network before it is awake.
func (h *Host) opened(p *place, c *Computer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.c = c
}

// Get implements control.Computers. It waits for a computer that is waking.
func (h *Host) Get(ctx context.Context, cid contract.CID) (control.Computer, error) {
	const op = "computer.Get"
	ctx, cancel := context.WithTimeout(ctx, wakeWait)
	defer cancel()
	for {
		h.mu.Lock()
		p := h.places[cid]
		if p == nil {
			h.mu.Unlock()
			return nil, noComputer(op, cid)
		}
		state, c, err, ended := p.state, p.c, p.err, p.ended
		h.mu.Unlock()
		switch {
		case state == view.StateAwake:
			return c, nil
		case state != view.StateWaking && err != nil:
			return nil, fault.New(op, fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%s does not wake: %s", p.name, fault.Text(err)))
		case state != view.StateWaking:
			return nil, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is asleep", p.name))
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is waking", p.name))
		}
	}
}

func noComputer(op string, cid contract.CID) error {
	return fault.New(op, fault.NotFound, "Leave --computer out when there is only one.", errors.New("there is no computer "+string(cid)))
}

// get returns a computer that is awake, or so far on its way that its log is open.
func (h *Host) get(cid contract.CID) (*Computer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.places[cid]
	switch {
	case p == nil:
		return nil, noComputer("computer.Get", cid)
	case p.c != nil:
		return p.c, nil
	case p.err != nil:
		return nil, fault.New("computer.Get", fault.Unavailable, fault.HintOf(p.err), fmt.Errorf("%s is not awake: %w", cid, p.err))
	}
	return nil, fault.New("computer.Get", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is not awake", cid))
}

// List implements control.Computers.
func (h *Host) List(ctx context.Context) ([]view.Computer, error) {
	h.mu.Lock()
	places := make([]place, 0, len(h.order))
	for _, cid := range h.order {
		places = append(places, *h.places[cid])
	}
	h.mu.Unlock()
	var out []view.Computer
	for _, p := range places {
		if p.state != view.StateAwake {
			out = append(out, view.Computer{ID: p.cid, Name: p.name, State: p.state, Driver: h.Driver.Name(), Trouble: h.trouble(p)})
			continue
		}
		info, err := p.c.Info(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// trouble says why a computer does not wake, what of it is safe, and what can be
// done.
func (h *Host) trouble(p place) *view.Trouble {
	if p.err == nil {
		return nil
	}
	t := &view.Trouble{Code: string(fault.CodeOf(p.err)), Reason: fault.Text(p.err), Hint: fault.HintOf(p.err), Actions: []view.Repair{view.RepairRetry, view.RepairExport}}
	if h.hurt(p, t) {
		return t
	}
	t.Safe = "Everything that was acknowledged is in the log; files and checkpoints are as they were."
	if t.Hint == "" {
		t.Hint = "Try again. If that does not help, open it without what its tasks left, or go back to a checkpoint."
	}
	t.Actions = append(t.Actions, view.RepairRewind, view.RepairWithoutTasks)
	if t.Tries = p.tries; !p.next.IsZero() {
		t.Next = &p.next
	}
	return t
}

// Wake implements control.Computers: another try, of a computer that did not wake.
func (h *Host) Wake(ctx context.Context, cid contract.CID, req view.WakeRequest) error {
	h.mu.Lock()
	p := h.places[cid]
	h.mu.Unlock()
	if p == nil {
		return noComputer("computer.Wake", cid)
	}
	if !h.Report.Usable() {
		// The store was not opened at all: what is damaged is looked at again with
		// everything closed.
		return h.again(Restart{})
	}
	h.mu.Lock()
	p.tries = 0
	h.mu.Unlock()
	h.begin(p, req, func(ctx context.Context) error { return h.look(ctx, p) })
	return nil
}

func (h *Host) again(r Restart) error {
	if h.Restart == nil {
		return fault.New("computer.Restart", fault.Missing, "Stop choir up and start it again.", errors.New("this control plane can't start itself anew"))
	}
	h.Restart(r)
	return nil
}

// fell puts a computer to sleep whose own services go on failing. The others
// are not touched; this one says why until it is woken again.
func (h *Host) fell(c *Computer, err error) {
	err = fault.New("", fault.Unavailable, "Try again, which wakes it; the server's log says more.", fmt.Errorf("it was put to sleep: %w", err))
	h.mu.Lock()
	p := h.places[c.cid]
	if h.closed.Load() || p == nil || p.c != c || p.apart != nil {
		h.mu.Unlock()
		return // it is being closed anyway, or by whom it was opened
	}
	if p.err = err; p.state == view.StateWaking {
		h.mu.Unlock()
		return // settle sees it
	}
	h.falls.Add(1)
	defer h.falls.Done()
	p.c, p.closing, p.state = nil, c, view.StateFailed
	if time.Since(p.since) > wakeSteady {
		p.tries = 0
	}
	h.retry(p)
	name, state := p.name, p.state
	h.mu.Unlock()
	c.logger.Error("the computer is put to sleep", "because", err)
	h.say(c.cid, name, state, err)
	h.lay(c)
}

// lay closes a computer that is not to be awake any more.
func (h *Host) lay(c *Computer) {
	if err := c.Close(); err != nil {
		c.logger.Error("it did not fall asleep in order", "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.places[c.cid]; p.closing == c {
		p.closing = nil
	}
}

// Close puts every computer to sleep and ends what the host started.
func (h *Host) Close() error {
	h.mu.Lock() // nobody is between asking whether it is closed and beginning something
	closed := h.closed.Swap(true)
	h.mu.Unlock()
	if closed {
		return nil
	}
	if h.cancel != nil {
		h.cancel()
	}
	h.waking.Wait()
	h.upkeep.done.Wait()
	h.mu.Lock()
	var awake []*Computer
	for _, p := range h.places {
		if p.state == view.StateAwake {
			awake = append(awake, p.c)
			p.closing = p.c
		}
		p.c, p.state = nil, view.StateAsleep
	}
	h.mu.Unlock()
	h.falls.Wait()
	var errs []error
	for _, c := range awake {
		errs = append(errs, c.Close(), h.mark(c.cid))
	}
	h.reserve.Close()
	errs = append(errs, h.gateway.Close())
	return errors.Join(append(errs, h.proxy.Close())...)
}
