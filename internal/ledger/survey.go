package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Survey is what a store's files hold of one computer's log, as read without the server.
type Survey struct {
	// End is the newest event up to which the log is whole: its events are numbered
	// without gaps and chained from the first one on, and no damaged record lies before
	// it.
	End Head
	// Unproven is how many events, from the first one on, were stored before events were
	// chained.
	Unproven uint64
	// Broken says why the log is not whole behind End; it is empty if End is the log's
	// end.
	Broken string
	// Seen is the newest sequence in any readable record.
	Seen uint64
	// At holds the stored bytes of the events that were asked for.
	At map[uint64][]byte

	chained bool
}

// Surveys holds the surveys of a store's logs by computer.
type Surveys map[contract.CID]*Survey

// SurveyStore reads the store in dir, or only what it holds of one computer, and collects
// of each log the events with the sequences in marks. Damage of the files is returned
// separately, also where it affects no log.
func SurveyStore(ctx context.Context, dir string, only contract.CID, marks map[contract.CID][]uint64) (Surveys, []bus.Damage, error) {
	out := Surveys{}
	wanted := map[contract.CID]map[uint64]bool{}
	for cid, list := range marks {
		wanted[cid] = map[uint64]bool{}
		for _, seq := range list {
			wanted[cid][seq] = true
		}
	}
	strangers := map[contract.CID]bool{}
	look := func(m bus.Message) {
		cid, stamp, err := peek(m)
		if err != nil {
			return // it is no event; if one was there, its log shows the gap
		}
		if m.Of != "" && m.Of != cid {
			strangers[m.Of] = true // another computer's event does not continue this log
			return
		}
		s := out[cid]
		if s == nil {
			s = &Survey{At: map[uint64][]byte{}, End: Head{Link: contract.FirstLink(cid)}}
			out[cid] = s
		}
		s.Seen = max(s.Seen, stamp.sequence)
		if s.Broken != "" || m.Behind {
			return
		}
		s.take(stamp, m.Data)
		if s.Broken == "" && wanted[cid][stamp.sequence] {
			s.At[stamp.sequence] = bytes.Clone(m.Data)
		}
	}
	damage, err := bus.ReadStore(ctx, dir, only, func(m bus.Message) error {
		// A message that holds anything but events is not as it was stored: no checksum
		// covers the length of its headers, and some of them may have become part of its
		// data.
		for one := range events(m) {
			if _, _, err := peek(one); err != nil {
				return nil // its log shows the gap
			}
		}
		for one := range events(m) {
			look(one)
		}
		return nil
	})
	for cid := range strangers {
		damage = append(damage, bus.Damage{File: "nats", What: "another computer's event stands in this log", Of: cid})
	}
	return out, damage, fault.Wrap("ledger.SurveyStore", err)
}

// take continues the log by one event, or notes why the event does not continue it.
func (s *Survey) take(at stamp, data []byte) {
	switch {
	case at.sequence != s.End.Sequence+1:
		s.Broken = fmt.Sprintf("event %d follows event %d", at.sequence, s.End.Sequence)
	case defence.Off(defence.LogChain):
		s.End = Head{Sequence: at.sequence, Epoch: at.epoch, Link: contract.LinkOf(data)}
	case at.prev == "" && s.chained:
		s.Broken = fmt.Sprintf("event %d is not part of the chain", at.sequence)
	case at.prev != "" && at.prev != s.End.Link:
		s.Broken = fmt.Sprintf("event %d does not continue the chain", at.sequence)
	default:
		s.chained = at.prev != ""
		if !s.chained {
			s.Unproven++
		}
		s.End = Head{Sequence: at.sequence, Epoch: at.epoch, Link: contract.LinkOf(data)}
	}
}

// stamp is what the Log that appended an event added to it.
type stamp struct {
	sequence, epoch uint64
	prev            contract.Link
}

// peek reads the computer and the stamp of a message with one event without decoding all of
// it. In what the Log encodes, the stamp follows the data, and quotes in texts are escaped,
// so the last `,"sequence":` is the envelope's. If the message was changed, it does not
// continue the chain, so peek need not notice.
func peek(m bus.Message) (contract.CID, stamp, error) {
	var s stamp
	parts := strings.SplitN(m.Subject, ".", 3)
	if len(parts) != 3 || parts[0] != "log" || contract.CID(parts[1]).Validate() != nil {
		return "", s, errors.New("not a subject of a log")
	}
	cid := contract.CID(parts[1])
	i := bytes.LastIndex(m.Data, []byte(`,"sequence":`))
	if i < 0 {
		return cid, s, errors.New("no sequence")
	}
	rest := m.Data[i+len(`,"sequence":`):]
	var ok bool
	if s.sequence, rest, ok = number(rest, `,"epoch":`); !ok {
		return cid, s, errors.New("no sequence")
	}
	if s.epoch, rest, ok = number(rest, `,"`); !ok {
		return cid, s, errors.New("no epoch")
	}
	if link, has := bytes.CutPrefix(rest, []byte(`prev":"`)); has {
		end := bytes.IndexByte(link, '"')
		if end < 0 {
			return cid, s, errors.New("no end of prev")
		}
		s.prev = contract.Link(link[:end])
	}
	return cid, s, nil
}

// number reads a number up to a separator.
func number(b []byte, sep string) (uint64, []byte, bool) {
	i := bytes.Index(b, []byte(sep))
	if i < 1 || i > 20 {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 63)
	return n, b[i+len(sep):], err == nil
}

// IsOf reports whether a message is an event of a computer.
func IsOf(m bus.Message, cid contract.CID) bool {
	of, _, err := peek(m)
	return err == nil && of == cid
}
