package computer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// countWait is how long a computer that falls asleep may take to be counted; the
// rest is counted when somebody asks.
const countWait = 5 * time.Second

// count brings the machine's sum up to the end of a computer's log. The log is
// the truth: calls are counted in its order, each once.
func (h *Host) count(ctx context.Context, log *ledger.Log) error {
	const op = "computer.count"
	h.counting.Lock()
	defer h.counting.Unlock()
	cid := log.CID()
	at, err := h.Spending.Counted(ctx, cid)
	if err != nil {
		return fault.Wrap(op, err)
	}
	if !h.counted[cid] {
		same, err := counts(ctx, log, at)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if !same {
			at = identity.Counted{} // it was recovered; calls that are known stay counted once
		}
	}
	for {
		events, err := log.Read(ctx, at.Sequence, 0)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if len(events) == 0 {
			h.counted[cid] = true
			return nil
		}
		calls, to, err := callsOf(ctx, log, events)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := h.reserve.Spaced(ctx, func() error { return h.Spending.Count(ctx, cid, to, calls) }); err != nil {
			return fault.Wrap(op, err)
		}
		at = to
	}
}

// counts says whether a log holds the event up to which it was counted.
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

// countAsleep counts what is left of a log that is about to be closed, so that
// its computer can be damaged later without a doubt about what it spent.
func (c *Computer) countAsleep() {
	if c.host.Spending == nil || c.log.Last() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countWait)
	defer cancel()
	if err := c.host.count(ctx, c.log); err != nil {
		c.logger.Warn("what was spent is not counted to the log's end; it is when somebody asks", "error", err)
	}
}

// spentIn says what a computer's calls consumed or, when cid is empty, those of
// all computers, be they awake or not, and tests of models; on a day or ever.
func (h *Host) spentIn(ctx context.Context, cid contract.CID, day string) (contract.Usage, error) {
	cids := []contract.CID{cid}
	if cid == "" {
		h.mu.Lock()
		cids = append([]contract.CID(nil), h.order...)
		h.mu.Unlock()
	}
	for _, cid := range cids {
		if err := h.countOf(ctx, cid); err != nil {
			return contract.Usage{}, err
		}
	}
	return h.Spending.Spent(ctx, cid, day)
}

// countOf counts what a computer's log holds, whether it is awake or not. When
// the log can't be read, either all of it was counted or its state knows the
// rest; otherwise nobody knows.
func (h *Host) countOf(ctx context.Context, cid contract.CID) error {
	if c, err := h.get(cid); err == nil {
		return h.count(ctx, c.log)
	}
	err := h.countUnopened(ctx, cid)
	if err == nil || ctx.Err() != nil {
		return err
	}
	whole, werr := h.countedWhole(ctx, cid)
	if whole || werr != nil {
		return werr
	}
	if serr := h.countState(ctx, cid); serr != nil {
		return fault.New("", fault.Unavailable, "", fmt.Errorf("what %s (%s) has spent is not known, for neither its log (%s) nor its state (%s) can be read to the end. "+
			"Recover it with choir recover, or set the budget to 0, which is none", h.nameOf(cid), cid, fault.Text(err), fault.Text(serr)))
	}
	return nil
}

func (h *Host) nameOf(cid contract.CID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.places[cid]; p != nil {
		return p.name
	}
	return "a computer"
}

// countUnopened reads the log of a computer that is not awake. Nothing is
// claimed, so whoever wakes it is not disturbed.
func (h *Host) countUnopened(ctx context.Context, cid contract.CID) error {
	if err := h.logRefusal(cid); err != nil {
		return err // the server does not have it
	}
	log, err := ledger.Open(ctx, h.Bus.JetStream(), ledger.Options{CID: cid, Blobs: h.Blobs, Health: h.Bus.Health, Unread: h.Bus.Unread})
	if err != nil {
		return err
	}
	if head, err := ledger.ReadHead(h.Dir.Computer(cid, "log.head")); err == nil && head.Sequence > log.Last() {
		return errors.Join(fault.New("", fault.Damaged, "", fmt.Errorf("it ends at event %d; it had %d", log.Last(), head.Sequence)), log.Close())
	}
	return errors.Join(h.count(ctx, log), log.Close())
}

// countedWhole says whether a log that can't be read was counted to its end, as
// its head tells it.
func (h *Host) countedWhole(ctx context.Context, cid contract.CID) (bool, error) {
	head, err := ledger.ReadHead(h.Dir.Computer(cid, "log.head"))
	if errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.Damaged) {
		return false, nil // nobody knows where it ends
	}
	if err != nil {
		return false, err
	}
	at, err := h.Spending.Counted(ctx, cid)
	return err == nil && at.Sequence == head.Sequence && at.Link == head.Link, err
}

// countState counts the rows of a computer's state, if they reach to the log's
// end as its head tells it.
func (h *Host) countState(ctx context.Context, cid contract.CID) error {
	head, err := ledger.ReadHead(h.Dir.Computer(cid, "log.head"))
	if err != nil {
		return err
	}
	var calls []identity.Call
	var to identity.Counted
	reached := false
	err = state.ReadRows(ctx, h.Dir.Computer(cid, "state.sqlite"), func(e contract.Event, _ []byte) error {
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
	return h.reserve.Spaced(ctx, func() error { return h.Spending.Count(ctx, cid, to, calls) })
}

func callOf(e contract.Event, p contract.Payload) (identity.Call, error) {
	m, ok := p.(*contract.UsageMetered)
	if !ok {
		return identity.Call{}, fmt.Errorf("event %d is a %T", e.Sequence, p)
	}
	return identity.Call{ID: m.Call, Computer: e.Computer, At: e.Time, Usage: m.Usage}, nil
}
