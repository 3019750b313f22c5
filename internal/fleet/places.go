package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// place is one computer of the machine, awake or not. fl.mu guards its fields.
type place struct {
	cid  contract.CID
	name string // as far as it is known before the computer wakes
	// created is when its log began, zero where that is unknown.
	created  time.Time
	last     uint64 // the newest event of its log, as read before it was opened
	state    view.ComputerState
	computer *computer.Computer // set once its log is open; only an awake place returns it to callers
	err      error              // why it did not wake, or was put to sleep
	// failed is why its last recovery failed.
	failed error
	ended  chan struct{}
	// closing is the computer while it falls asleep: what its boxes still report counts.
	closing *computer.Computer
	laid    chan struct{} // closed once it has fallen asleep
	apart   chan struct{} // set while its log or history is opened although it is not awake; closed afterwards
	round   int           // counts its wakings
	tries   int           // how often it was tried again automatically
	next    time.Time     // when it is tried again; zero: not automatically
	since   time.Time     // since when it is awake
	uses    int           // how many callers are using it
	used    time.Time     // when the last of them was done, or it was last busy itself
	known   view.Computer // its description when it fell asleep
	// waits is what of it waits for a person, as read since it fell asleep; nil: it was not read.
	waits   []view.Waiting
	removed *removal // set if it was removed and can be put back
	found   bool     // its directory contained something before it was made
	// logClosed says that the server has its log closed: its files are then examined before it
	// is opened again. It is changed only by whoever wakes the place or has it apart.
	logClosed bool
}

// wakeWait bounds how long a caller waits for a computer that is waking.
const wakeWait = 45 * time.Second

// Open takes up the computers of the data directory, and returns at once; if there is none
// it makes the first. Computers that have something unfinished, or may have, begin to wake,
// each by itself; the others sleep until they are asked for. A computer that does not wake
// affects no other.
func (fl *Fleet) Open(ctx context.Context) error {
	cids := make([]contract.CID, 0, len(fl.Report.Computers))
	for cid := range fl.Report.Computers {
		cids = append(cids, cid)
	}
	slices.SortFunc(cids, func(a, b contract.CID) int {
		return cmp.Or(fl.Report.Created[a].Compare(fl.Report.Created[b]), cmp.Compare(a, b))
	})
	fresh := len(cids) == 0 && fl.Report.Usable()
	if fresh {
		cids = append(cids, contract.NewCID())
	}
	if err := fl.clearForks(); err != nil {
		return fault.Wrap("fleet.Open", err)
	}
	fl.lookForModels(ctx)
	fl.openParts(ctx)
	for _, cid := range cids {
		p, err := fl.takeUp(cid, fl.Report)
		if err != nil {
			return fault.Wrap("fleet.Open", err)
		}
		fl.mu.Lock()
		fl.places[cid] = p
		fl.order = append(fl.order, cid)
		fl.mu.Unlock()
		if p.removed != nil {
			continue
		}
		if err := fl.Report.Refusal(cid); err != nil {
			fl.settle(p, nil, err)
			continue
		}
		// Whoever starts a machine with one computer is about to use it.
		if fresh || len(cids) == 1 || fl.Report.Open[cid] {
			fl.begin(p, view.WakeRequest{}, nil)
		}
	}
	fl.ownUpkeep()
	fl.ownSleep(fl.Config.Runtime.SleepAfter())
	return nil
}

// begin wakes a place in a goroutine of its own, unless it is awake or waking. It first
// calls first, if any, while nobody has the computer open.
func (fl *Fleet) begin(p *place, req view.WakeRequest, first func(context.Context) error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.closed.Load() || p.state == view.StateWaking || p.state == view.StateAwake || p.closing != nil || p.apart != nil || p.removed != nil {
		return // it is waking or falling asleep
	}
	p.round++
	p.waits = nil
	p.state, p.err, p.ended = view.StateWaking, nil, make(chan struct{})
	fl.waking.Go(func() {
		c, err := fl.wakeAlone(p, req, first)
		fl.settle(p, c, err)
	})
}

// wakeAlone wakes a computer; a panic meanwhile counts as this computer's failure.
func (fl *Fleet) wakeAlone(p *place, req view.WakeRequest, first func(context.Context) error) (c *computer.Computer, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			fl.Logger.Error("waking a computer panicked", "computer", string(p.cid), "panic", broken, "stack", string(debug.Stack()))
			c, err = nil, fault.New("", fault.Unavailable, "Try again, or open it without what its tasks left; the server's log has the details.", fmt.Errorf("something failed inside while it woke: %v", broken))
		}
	}()
	if first == nil {
		first = func(ctx context.Context) error { return fl.inspectAgain(ctx, p) }
	}
	if err := first(fl.ctx); err != nil {
		return nil, err
	}
	return fl.wake(fl.ctx, p.cid, computer.WakeOptions{
		Name: p.name, WithoutTasks: req.WithoutTasks, Opened: func(c *computer.Computer) { fl.opened(p, c) },
	})
}

// settle records how waking ended, and what an awake computer has.
func (fl *Fleet) settle(p *place, c *computer.Computer, err error) {
	name, state, err := fl.record(p, c, err)
	fl.reportState(p.cid, name, state, err)
}

// reportState reports a computer's state through Options.StateChanged. fl.mu is not held, for that may take
// a while.
func (fl *Fleet) reportState(cid contract.CID, name string, state view.ComputerState, err error) {
	if fl.StateChanged != nil && fl.ctx.Err() == nil {
		fl.StateChanged(cid, name, state, err)
	}
}

func (fl *Fleet) record(p *place, c *computer.Computer, err error) (string, view.ComputerState, error) {
	if c != nil {
		if merr := fl.mark(p.cid); merr != nil {
			fl.Logger.Warn("what the data directory has could not be written down", "error", merr)
		}
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if c != nil && p.err != nil {
		// A part of it was given up while it woke.
		p.close(c)
		fl.closing.Go(func() { fl.closeComputer(c) })
		c, err = nil, p.err
	}
	p.computer, p.err = c, err
	switch {
	case err == nil:
		p.state, p.since = view.StateAwake, time.Now()
		p.used = p.since
	case fault.Is(err, fault.Damaged), fl.refused(p.cid):
		p.state = view.StateDamaged
	default:
		p.state = view.StateFailed
		fl.retry(p)
	}
	if err != nil && fl.ctx.Err() == nil {
		fl.Logger.Error("a computer does not wake", "computer", string(p.cid), "error", err)
	}
	if p.ended != nil {
		close(p.ended)
	}
	return p.name, p.state, err
}

// mark records in the data directory what an awake computer has.
func (fl *Fleet) mark(cid contract.CID) error {
	return fl.Dir.Mark(cid)
}

// opened makes a computer that is still waking available to its own runs, which meter and
// use the network before it is awake.
func (fl *Fleet) opened(p *place, c *computer.Computer) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	p.computer = c
}

func noComputer(op string, cid contract.CID) error {
	return fault.New(op, fault.NotFound, "Leave --computer out when there is only one.", errors.New("there is no computer "+string(cid)))
}

// get returns a computer that is awake, or waking with its log already open.
func (fl *Fleet) get(cid contract.CID) (*computer.Computer, error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	p := fl.places[cid]
	switch {
	case p == nil:
		return nil, noComputer("fleet.Get", cid)
	case p.computer != nil:
		return p.computer, nil
	case p.err != nil:
		return nil, fault.New("fleet.Get", fault.Unavailable, fault.HintOf(p.err), fmt.Errorf("%s is not awake: %w", cid, p.err))
	}
	return nil, fault.New("fleet.Get", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is not awake", cid))
}

// IDs implements control.Computers.
func (fl *Fleet) IDs() []contract.CID {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make([]contract.CID, 0, len(fl.order))
	for _, cid := range fl.order {
		if fl.find(cid) != nil {
			out = append(out, cid)
		}
	}
	return out
}

// List implements control.Computers.
func (fl *Fleet) List(ctx context.Context) ([]view.Computer, error) {
	fl.mu.Lock()
	places := make([]place, 0, len(fl.order))
	for _, cid := range fl.order {
		if p := fl.find(cid); p != nil {
			places = append(places, *p)
		}
	}
	fl.mu.Unlock()
	var out []view.Computer
	for _, p := range places {
		info, err := fl.show(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// listed is one computer as List shows it.
func (fl *Fleet) listed(ctx context.Context, cid contract.CID) (view.Computer, error) {
	fl.mu.Lock()
	p := fl.find(cid)
	if p == nil {
		fl.mu.Unlock()
		return view.Computer{}, noComputer("fleet.List", cid)
	}
	at := *p
	fl.mu.Unlock()
	return fl.show(ctx, at)
}

func (fl *Fleet) show(ctx context.Context, p place) (view.Computer, error) {
	if p.state == view.StateAwake {
		return p.computer.Info(ctx)
	}
	if p.state == view.StateAsleep && p.known.ID != "" {
		return p.known, nil
	}
	return view.Computer{ID: p.cid, Name: p.name, State: p.state, Created: p.created, Driver: fl.Driver.Name(), Sequence: p.last, Trouble: fl.trouble(p)}, nil
}

// trouble says why a computer does not wake, what of it is safe, and what can be done.
func (fl *Fleet) trouble(p place) *view.Trouble {
	if p.err == nil {
		return nil
	}
	t := &view.Trouble{Code: string(fault.CodeOf(p.err)), Reason: fault.Text(p.err), Hint: fault.HintOf(p.err), Actions: []view.Repair{view.RepairRetry, view.RepairExport}}
	if fl.describeDamage(p, t) {
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

// Wake implements control.Computers: another try, of a computer that did not wake, or
// the first of one that is asleep. Of one that is awake, parts that were given up are started
// again.
func (fl *Fleet) Wake(ctx context.Context, cid contract.CID, req view.WakeRequest) error {
	fl.mu.Lock()
	p := fl.find(cid)
	fl.mu.Unlock()
	if p == nil {
		return noComputer("fleet.Wake", cid)
	}
	if !fl.Report.Usable() {
		// The store was not opened at all, so what is damaged has to be examined again with
		// everything closed.
		return fl.again(Restart{})
	}
	fl.mu.Lock()
	p.tries = 0
	if p.state == view.StateAwake {
		p.computer.Again()
	}
	asleep := p.state == view.StateAsleep
	busy, what := p.busy()
	fl.mu.Unlock()
	if asleep && busy != nil { // it is falling asleep
		waits, cancel := context.WithTimeout(ctx, wakeWait)
		defer cancel()
		select {
		case <-busy:
		case <-waits.Done():
			return fault.New("fleet.Wake", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s %s", p.name, what))
		}
	}
	fl.begin(p, req, func(ctx context.Context) error { return fl.inspectAgain(ctx, p) })
	return nil
}

func (fl *Fleet) again(r Restart) error {
	if fl.Restart == nil {
		return fault.New("fleet.Restart", fault.Missing, "Stop choir up and start it again.", errors.New("this control plane can't start itself anew"))
	}
	fl.Restart(r)
	return nil
}

// closeComputer closes a computer that is no longer to be awake, and says whether that
// succeeded.
func (fl *Fleet) closeComputer(c *computer.Computer) bool {
	err := supervise.Safely(c.Close)
	if err != nil {
		fl.log(c).Error("it did not fall asleep in order", "error", err, "stack", supervise.Stack(err))
	}
	shut := fl.closeLog(c.CID())
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if p := fl.places[c.CID()]; p.closing == c {
		p.logClosed = shut
		p.closing = nil
		close(p.laid)
	}
	return err == nil
}

// Close puts every computer to sleep and ends what the fleet started.
func (fl *Fleet) Close() error {
	fl.mu.Lock() // whoever checks closed and then starts something holds it meanwhile
	closed := fl.closed.Swap(true)
	fl.mu.Unlock()
	if closed {
		return nil
	}
	if fl.cancel != nil {
		fl.cancel()
	}
	fl.waking.Wait()
	if fl.parts != nil {
		fl.parts.Stop()
		defer fl.parts.Close()
	}
	fl.mu.Lock()
	var awake []*computer.Computer
	for _, p := range fl.places {
		if p.state == view.StateAwake {
			awake = append(awake, p.computer)
			p.close(p.computer)
		}
		p.computer, p.state = nil, view.StateAsleep
	}
	fl.mu.Unlock()
	fl.closing.Wait()
	var errs []error
	for _, c := range awake {
		errs = append(errs, supervise.Safely(c.Close), fl.mark(c.CID()))
	}
	fl.machine.Reserve.Close()
	errs = append(errs, fl.machine.Gateway.Close())
	return errors.Join(append(errs, fl.machine.Boxes.Proxy.Close())...)
}

// log is the program's log with the computer's id.
func (fl *Fleet) log(c *computer.Computer) *slog.Logger {
	return fl.Logger.With("computer", string(c.CID()))
}
