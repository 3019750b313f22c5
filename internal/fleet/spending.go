package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// count updates the machine's sums up to the end of a computer's log. The log decides:
// calls are counted in its order, each once.
func (fl *Fleet) count(ctx context.Context, log *ledger.Log) error {
	const op = "computer.count"
	fl.counting.Lock()
	defer fl.counting.Unlock()
	cid := log.CID()
	at, err := fl.Spending.Counted(ctx, cid)
	if err != nil {
		return fault.Wrap(op, err)
	}
	if !fl.counted[cid] {
		same, err := counts(ctx, log, at)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if !same {
			at = identity.Counted{} // the log was recovered; calls that are known are not counted again
		}
	}
	for {
		events, err := log.Read(ctx, at.Sequence, 0)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if len(events) == 0 {
			fl.counted[cid] = true
			return nil
		}
		calls, to, err := callsOf(ctx, log, events)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := fl.machine.Reserve.RetryWithRoom(ctx, func() error { return fl.Spending.Count(ctx, cid, to, calls) }); err != nil {
			return fault.Wrap(op, err)
		}
		at = to
	}
}

// counts says whether a log contains the event up to which it was counted.
func counts(ctx context.Context, log *ledger.Log, at identity.Counted) (bool, error) {
	if at.Sequence == 0 || at.Sequence > log.Last() {
		return at.Sequence == 0, nil
	}
	events, err := log.Read(ctx, at.Sequence-1, 1)
	if err != nil || len(events) == 0 {
		return false, err
	}
	b, err := contract.Stored(events[0])
	return contract.LinkOf(b) == at.Link, err
}

// callsOf finds the calls of models among events that follow each other.
func callsOf(ctx context.Context, log *ledger.Log, events []contract.Event) (calls []identity.Call, to identity.Counted, err error) {
	for _, e := range events {
		if e.Type != "usage.metered" {
			continue
		}
		p, err := log.Payload(ctx, e)
		if err != nil {
			return nil, to, err
		}
		call, err := callOf(e, p)
		if err != nil {
			return nil, to, err
		}
		calls = append(calls, call)
	}
	last := events[len(events)-1]
	b, err := contract.Stored(last)
	return calls, identity.Counted{Sequence: last.Sequence, Link: contract.LinkOf(b)}, err
}

// spentIn returns what a computer's calls consumed or, when cid is empty, those of all
// computers, awake or not, and tests of models; on a day or ever.
func (fl *Fleet) spentIn(ctx context.Context, cid contract.CID, day string) (contract.Usage, error) {
	cids := []contract.CID{cid}
	if cid == "" {
		fl.mu.Lock()
		cids = append([]contract.CID(nil), fl.order...)
		fl.mu.Unlock()
	}
	for _, cid := range cids {
		if err := fl.countOf(ctx, cid); err != nil {
			return contract.Usage{}, err
		}
	}
	return fl.Spending.Spent(ctx, cid, day)
}

// countOf counts what a computer's log contains, whether it is awake or not. If the log
// can't be read, either all of it was counted before, or its state has the rest; otherwise
// the sum is unknown.
func (fl *Fleet) countOf(ctx context.Context, cid contract.CID) error {
	if c, err := fl.get(cid); err == nil {
		return fl.count(ctx, c.Log())
	}
	if whole, err := fl.countedAsleep(ctx, cid); whole || err != nil {
		return err
	}
	err := fl.countUnopened(ctx, cid)
	if err == nil || ctx.Err() != nil {
		return err
	}
	whole, werr := fl.countedWhole(ctx, cid)
	if whole || werr != nil {
		return werr
	}
	if serr := fl.countState(ctx, cid); serr != nil {
		return fault.New("", fault.Unavailable, "", fmt.Errorf("what %s (%s) has spent is not known, for neither its log (%s) nor its state (%s) can be read to the end. "+
			"Recover it with choir recover, or set the budget to 0, which is none", fl.nameOf(cid), cid, fault.Text(err), fault.Text(serr)))
	}
	return nil
}

func (fl *Fleet) nameOf(cid contract.CID) string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if p := fl.places[cid]; p != nil {
		return p.name
	}
	return "a computer"
}

// countUnopened reads the log of a computer that is not awake. It does not claim the log,
// so it does not disturb whoever wakes the computer.
func (fl *Fleet) countUnopened(ctx context.Context, cid contract.CID) error {
	if err := fl.logRefusal(cid); err != nil {
		return err // the server does not have it
	}
	fl.mu.Lock()
	p := fl.places[cid]
	asleep, shut := p != nil && p.state == view.StateAsleep, p != nil && p.logClosed
	fl.mu.Unlock()
	read := func(ctx context.Context) error { return fl.countLog(ctx, cid) }
	switch {
	case asleep:
		return past{fl, p}.apart(ctx, read)
	case shut:
		return fault.New("", fault.Unavailable, "Try again in a moment.", errWoken) // and looked at
	}
	return read(ctx)
}

// countLog reads a log that nobody closes meanwhile.
func (fl *Fleet) countLog(ctx context.Context, cid contract.CID) error {
	log, err := fl.readLog(ctx, cid)
	if err != nil {
		return err
	}
	if head, err := ledger.ReadHead(fl.Dir.Computer(cid, "log.head")); err == nil && head.Sequence > log.Last() {
		return errors.Join(fault.New("", fault.Damaged, "", fmt.Errorf("it ends at event %d; it had %d", log.Last(), head.Sequence)), log.Close())
	}
	return errors.Join(fl.count(ctx, log), log.Close())
}

// readLog opens a log for reading only; it does not claim it.
func (fl *Fleet) readLog(ctx context.Context, cid contract.CID) (*ledger.Log, error) {
	return ledger.Open(ctx, fl.Bus.JetStream(), ledger.Options{CID: cid, Blobs: fl.Blobs, Ensure: fl.Bus.EnsureStream, Health: fl.Bus.Health, FailedReads: fl.Bus.FailedReads})
}

// countedAsleep says whether a sleeping computer was counted to the end of its log, as it
// is when it falls asleep; then its log need not be opened. Whoever wrote to it since has
// updated its head.
func (fl *Fleet) countedAsleep(ctx context.Context, cid contract.CID) (bool, error) {
	fl.mu.Lock()
	p := fl.places[cid]
	asleep := p != nil && p.state == view.StateAsleep && p.err == nil && p.closing == nil && p.apart == nil
	said, last := asleep && p.known.ID != "", uint64(0)
	if asleep {
		last = p.last
	}
	fl.mu.Unlock()
	if !asleep {
		return false, nil
	}
	if head, err := ledger.ReadHead(fl.Dir.Computer(cid, "log.head")); !said && (err != nil || head.Sequence != last) {
		return false, nil // this process did not put it to sleep, so its head may be older than the end of the log
	}
	return fl.countedWhole(ctx, cid)
}

// countedWhole says whether a log that can't be read was counted to its end, according to
// its head.
func (fl *Fleet) countedWhole(ctx context.Context, cid contract.CID) (bool, error) {
	head, err := ledger.ReadHead(fl.Dir.Computer(cid, "log.head"))
	if errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.Damaged) {
		return false, nil // nobody knows where it ends
	}
	if err != nil {
		return false, err
	}
	at, err := fl.Spending.Counted(ctx, cid)
	return err == nil && at.Sequence == head.Sequence && at.Link == head.Link, err
}

// countState counts the rows of a computer's state, if they reach to the log's end
// according to its head.
func (fl *Fleet) countState(ctx context.Context, cid contract.CID) error {
	head, err := ledger.ReadHead(fl.Dir.Computer(cid, "log.head"))
	if err != nil {
		return err
	}
	var calls []identity.Call
	var to identity.Counted
	reached := false
	err = state.ReadRows(ctx, fl.Dir.Computer(cid, "state.sqlite"), func(e contract.Event, _ []byte) error {
		b, err := contract.Stored(e)
		if err != nil {
			return err
		}
		to = identity.Counted{Sequence: e.Sequence, Link: contract.LinkOf(b)}
		reached = reached || to.Sequence == head.Sequence && to.Link == head.Link
		if e.Type != "usage.metered" {
			return nil
		}
		p, err := contract.DecodeData(e.Type, e.Data)
		if err != nil {
			return err
		}
		call, err := callOf(e, p)
		calls = append(calls, call)
		return err
	})
	if err == nil && !reached {
		err = fmt.Errorf("it ends at event %d; the log had %d", to.Sequence, head.Sequence)
	}
	if err != nil {
		return err
	}
	return fl.machine.Reserve.RetryWithRoom(ctx, func() error { return fl.Spending.Count(ctx, cid, to, calls) })
}

func callOf(e contract.Event, p contract.Payload) (identity.Call, error) {
	m, ok := p.(*contract.UsageMetered)
	if !ok {
		return identity.Call{}, fmt.Errorf("event %d is a %T", e.Sequence, p)
	}
	return identity.Call{ID: m.Call, Computer: e.Computer, At: e.Time, Usage: m.Usage}, nil
}
