package ledger

import (
	"bytes"
	"context"
	"iter"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
)

// Recovered says what was recovered of a log.
type Recovered struct {
	End       Head
	FromStore uint64 // events that the store's files still held
	FromRows  uint64 // events that only the state had
	Unproven  uint64 // how many of all these were stored before events were chained
}

// Row is an event as a state database holds it. Sound says that the digest stored with it
// is right.
type Row struct {
	Event contract.Event
	Sound bool
}

// candidate is an event that may be the next one of a log: one from a message of the
// server's store, or a row of the state.
type candidate struct {
	stamp
	subject string
	header  nats.Header
	data    []byte
	row     bool
}

// Merge calls keep with every event of a computer's log that can be recovered, in order and
// without gaps: from the store's files in dir, and where those end or have a hole, from
// rows. An event is used only if it continues the chain, and a row only if its own digest
// is right as well. The log ends where neither source has the next event.
func Merge(ctx context.Context, dir string, cid contract.CID, rows iter.Seq2[Row, error], keep func(subject string, header nats.Header, data []byte) error) (Recovered, error) {
	const op = "ledger.Merge"
	m := merger{cid: cid, keep: keep, kept: Recovered{End: Head{Link: contract.FirstLink(cid)}}}
	next, stop := iter.Pull2(rows)
	defer stop()
	m.pull = next
	_, err := bus.ReadStore(ctx, dir, cid, func(msg bus.Message) (err error) {
		var header nats.Header
		if len(msg.Header) > 0 {
			if header, err = nats.DecodeHeadersMsg(msg.Header); err != nil {
				return nil // a message that can't be read is not used
			}
		}
		several := msg.Subject == contract.SubjectEvents(cid)
		for one := range events(msg) {
			of, at, err := peek(one)
			if err != nil || of != cid {
				continue // it is not an event of this log; if one is missing, its sequence shows that
			}
			c := candidate{stamp: at, subject: one.Subject, header: plain(header), data: bytes.Clone(one.Data)}
			if several {
				e, err := contract.UnmarshalEvent(c.data)
				if err != nil {
					continue
				}
				c.subject = contract.SubjectEvent(e)
			}
			if err := m.offer(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = m.fill(0)
	}
	return m.kept, fault.Wrap(op, err)
}

// plain keeps of a message's headers only the one that names the owner who wrote it: the
// others were about a single try to store it.
func plain(h nats.Header) nats.Header {
	if v := h.Get(ownerHeader); v != "" {
		return nats.Header{ownerHeader: {v}}
	}
	return nil
}

type merger struct {
	cid     contract.CID
	keep    func(string, nats.Header, []byte) error
	pull    func() (Row, error, bool)
	row     *Row // the row that was read last and not used yet
	dry     bool // there are no more rows
	kept    Recovered
	chained bool
}

// continues reports whether c is the next event of the log.
func (m *merger) continues(c *candidate) bool {
	if c.sequence != m.kept.End.Sequence+1 {
		return false
	}
	if c.prev == "" {
		return !m.chained
	}
	return c.prev == m.kept.End.Link
}

// offer uses an event of the store if it continues the log, after the rows that belong
// before it.
func (m *merger) offer(c candidate) error {
	if c.sequence <= m.kept.End.Sequence {
		return nil
	}
	if err := m.fill(c.sequence); err != nil {
		return err
	}
	if !m.continues(&c) {
		return nil // a row may continue it; otherwise the log ends here
	}
	return m.take(&c)
}

// fill uses rows as long as they continue the log, up to but without the sequence before; 0
// means all.
func (m *merger) fill(before uint64) error {
	for {
		at := m.kept.End.Sequence
		if before > 0 && at+1 >= before {
			return nil
		}
		for m.row == nil && !m.dry {
			r, err, ok := m.pull()
			if !ok || fault.Is(err, fault.Damaged) {
				m.dry = true // the rows that can be read have been read
				break
			}
			if err != nil {
				return err
			}
			m.row = &r
		}
		switch {
		case m.dry:
			return nil
		case m.row.Event.Sequence <= at:
			m.row = nil
			continue
		case m.row.Event.Sequence > at+1:
			return nil
		}
		e := m.row.Event
		data, err := contract.Stored(e)
		if err != nil {
			return err
		}
		c := candidate{stamp: stamp{e.Sequence, e.Epoch, e.Prev}, subject: contract.SubjectEvent(e), data: data, row: true}
		if !m.row.Sound || e.Validate() != nil || !m.continues(&c) {
			return nil
		}
		m.row = nil
		if err := m.take(&c); err != nil {
			return err
		}
	}
}

// take keeps the next event.
func (m *merger) take(c *candidate) error {
	if err := m.keep(c.subject, c.header, c.data); err != nil {
		return err
	}
	if c.prev == "" {
		m.kept.Unproven++
	}
	m.chained = c.prev != ""
	if c.row {
		m.kept.FromRows++
	} else {
		m.kept.FromStore++
	}
	m.kept.End = Head{Sequence: c.sequence, Epoch: c.epoch, Link: contract.LinkOf(c.data)}
	return nil
}
