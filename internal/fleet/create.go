package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// maxComputers bounds the computers of a machine: each has a log of its own, which costs
// the store something even while the computer sleeps.
const maxComputers = 1000

// Create implements control.Computers: it makes a computer and waits until it is
// awake. One that is there already is returned as it is, so that a request whose
// answer was lost can be sent again. A computer is made when its first event is on
// disk; of one that fails before that nothing is kept.
func (fl *Fleet) Create(ctx context.Context, cid contract.CID, name string) (view.Computer, error) {
	const op = "fleet.Create"
	if err := fl.makable(cid, name); err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	c, err := fl.make(ctx, cid, name, "")
	return c, fault.Wrap(op, err)
}

// make gives a computer its place and wakes it. laid is the directory that it begins with,
// empty for a computer that begins with nothing. If the computer exists already or can't be
// made, laid is removed.
func (fl *Fleet) make(ctx context.Context, cid contract.CID, name, laid string) (view.Computer, error) {
	p, fresh, err := fl.place(ctx, cid, name, laid)
	var first func(context.Context) error
	switch {
	case laid != "" && fresh:
		first = func(context.Context) error { return durable.SyncDir(fl.Dir.Path("computers")) }
	case laid != "":
		// No box of it ever ran, so only this process wrote what is removed.
		err = errors.Join(err, os.RemoveAll(laid))
	}
	if err != nil {
		return view.Computer{}, err
	}
	if fresh {
		fl.begin(p, view.WakeRequest{}, first)
	}
	if err := fl.ended(ctx, p); err != nil {
		return view.Computer{}, err
	}
	if fresh && fl.failing(p) {
		if err := fl.unmade(ctx, p); err != nil {
			return view.Computer{}, err
		}
	}
	return fl.listed(ctx, cid)
}

// makable returns why no computer can be made, or nil.
func (fl *Fleet) makable(cid contract.CID, name string) error {
	if err := cid.Validate(); err != nil {
		return err
	}
	if err := (contract.ComputerRenamed{Name: name}).Validate(); err != nil {
		return err
	}
	if !fl.Report.Usable() {
		return fault.New("", fault.Unavailable, "Recover what is damaged first.", errors.New("what all computers share is damaged, so none can be made"))
	}
	return fl.machine.Reserve.Check("")
}

// place returns the place of a computer; if there is none, a new one, which gets the
// prepared directory laid.
func (fl *Fleet) place(ctx context.Context, cid contract.CID, name, laid string) (p *place, fresh bool, err error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if p, err = fl.taken(ctx, cid); p != nil || err != nil {
		return p, false, err
	}
	there, err := os.ReadDir(fl.Dir.Computer(cid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return nil, false, err
	}
	if laid != "" {
		if len(there) > 0 {
			return nil, false, fault.New("", fault.Conflict, "Draw another id, or leave it out.", fmt.Errorf("something of %s is there already", cid))
		}
		if err := os.Rename(laid, fl.Dir.Computer(cid)); err != nil {
			return nil, false, err
		}
		crash.At("fork.named")
	}
	p = &place{cid: cid, name: name, state: view.StateAsleep, found: len(there) > 0}
	fl.places[cid], fl.order = p, append(fl.order, cid)
	return p, true, nil
}

// taken is the place of an existing computer; nil if one can be made under this id. It
// waits until the remains of a failed creation under this id are removed, and releases
// fl.mu, which is held, meanwhile.
func (fl *Fleet) taken(ctx context.Context, cid contract.CID) (*place, error) {
	for fl.unmaking[cid] != nil {
		through := fl.unmaking[cid]
		fl.mu.Unlock()
		select {
		case <-through:
			fl.mu.Lock()
		case <-ctx.Done():
			fl.mu.Lock()
			return nil, fault.New("", fault.Unavailable, "Ask for it again.", fmt.Errorf("what was begun of %s is still being removed", cid))
		}
	}
	if p := fl.places[cid]; p != nil && p.removed != nil {
		return nil, fault.New("", fault.Conflict, "Put it back, or draw another id.", fmt.Errorf("the computer %s was removed", cid))
	} else if p != nil {
		return p, nil
	}
	if fl.closed.Load() {
		return nil, fault.New("", fault.Unavailable, "Try again in a moment.", errors.New("choir is being stopped"))
	}
	if len(fl.places) >= maxComputers {
		return nil, fault.New("", fault.Exhausted, "Remove one that is not needed any more.", fmt.Errorf("there are %d computers, which is the most that one machine has", len(fl.places)))
	}
	return nil, nil
}

// ended waits until a computer that is waking is awake, or has failed to wake.
func (fl *Fleet) ended(ctx context.Context, p *place) error {
	fl.mu.Lock()
	waking, ended := p.state == view.StateWaking, p.ended
	fl.mu.Unlock()
	if !waking {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fault.New("", fault.Unavailable, "Ask for it again; it goes on being made.", fmt.Errorf("%s is still being made", p.name))
	}
}

func (fl *Fleet) failing(p *place) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return p.err != nil
}

// unmade returns why the creation of a computer failed, and forgets the computer; nil if
// the computer has begun, awake or not, or something existed before it.
func (fl *Fleet) unmade(ctx context.Context, p *place) error {
	last, err := fl.lastUnopened(ctx, p.cid)
	fl.mu.Lock()
	why := p.err
	if err != nil || last > 0 || why == nil || p.found || p.state == view.StateWaking {
		fl.mu.Unlock()
		return nil
	}
	// Whoever asks for this id meanwhile waits, so that nothing of theirs is removed.
	through := make(chan struct{})
	if fl.unmaking == nil {
		fl.unmaking = map[contract.CID]chan struct{}{}
	}
	fl.unmaking[p.cid] = through
	defer func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		delete(fl.unmaking, p.cid)
		close(through)
	}()
	p.round++ // it is not tried again
	delete(fl.places, p.cid)
	fl.order = slices.DeleteFunc(fl.order, func(cid contract.CID) bool { return cid == p.cid })
	fl.mu.Unlock()
	// No box of it ever ran, so only this process wrote what is removed.
	if err := errors.Join(fl.Bus.Remove(ctx, p.cid), os.RemoveAll(fl.Dir.Computer(p.cid))); err != nil {
		return errors.Join(why, fmt.Errorf("and what was begun of it could not be removed: %w", err))
	}
	return why
}

// lastUnopened is the newest sequence of the log of a computer that nobody has open.
func (fl *Fleet) lastUnopened(ctx context.Context, cid contract.CID) (uint64, error) {
	log, err := fl.readLog(ctx, cid)
	if err != nil {
		return 0, err
	}
	return log.Last(), log.Close()
}
