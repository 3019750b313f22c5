package ledger

import (
	"bytes"
	"errors"
	"iter"
	"strconv"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// The server stores and syncs one message after the other, and discards a message that a
// crash or a power cut left half stored. So events that are appended together go into one
// message: it takes one sync, and stores all of them or none.
//
// A message holds one event or several that follow each other, one a line. A stored event
// contains no line break.

// messageBytes bounds the length of a message with more than one event.
const messageBytes = contract.MaxEvent

// message is one message of a plan.
type message struct {
	*nats.Msg
	upTo int // how many of the plan's events are stored with it
}

// encode makes the plan's messages. The first one carries the fence: the server stores it
// only if the log's newest message is still end. Usually the fence is the stream's last
// position, which the server has at hand. That is wrong if the server has removed messages
// from the stream's end, so after such a refusal (misses > 0) the fence names the log's
// newest message instead, for which the server must look. Several messages are stored in
// order, and none behind one that was refused. If what must be stored together does not fit
// into one message, all are sent as an atomic batch, which the server stores whole or not
// at all, even when it is killed in the middle.
func (l *Log) encode(p *plan, end stored, misses int) error {
	l.try++
	if err := p.write(end.link); err != nil {
		return err
	}
	ends, whole := p.divide()
	chain := ""
	switch {
	case len(ends) == 1:
	case !whole:
		p.batch = contract.NewID()
	default:
		// Unlike a position, which may be right by accident, an id belongs to one try
		// only.
		chain = l.owner + "." + strconv.FormatUint(l.try, 10) + "."
	}
	for i, from := 0, 0; i < len(ends); i, from = i+1, ends[i] {
		p.messages = append(p.messages, message{Msg: l.message(p, from, ends[i]), upTo: ends[i]})
		m, last := p.messages[i], i == len(ends)-1
		if chain != "" {
			m.Header["Nats-Msg-Id"] = []string{chain + strconv.Itoa(i)}
			if i > 0 {
				m.Header["Nats-Expected-Last-Msg-Id"] = []string{chain + strconv.Itoa(i-1)}
			}
		}
		if p.batch != "" {
			m.Header["Nats-Batch-Id"] = []string{p.batch}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
			if last {
				m.Header["Nats-Batch-Commit"] = []string{"1"}
			}
		}
		if p.batch == "" || last {
			m.Reply = l.inbox + "." + strconv.FormatUint(l.try, 10) + "." + strconv.Itoa(i)
		}
	}
	h, at := p.messages[0].Header, []string{strconv.FormatUint(end.position, 10)}
	if p.batch == "" && misses == 0 {
		h["Nats-Expected-Last-Sequence"] = at
		return nil
	}
	h["Nats-Expected-Last-Subject-Sequence"] = at
	h["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{l.filter}
	return nil
}

// write encodes the plan's events, each with the link of the event before it.
func (p *plan) write(link contract.Link) error {
	p.lines, p.links = make([][]byte, len(p.events)), make([]contract.Link, len(p.events))
	for i := range p.events {
		p.events[i].Prev = link
		line, err := contract.Stored(p.events[i]) // validated by prepare
		if err != nil {
			return fault.New("", fault.Invalid, "", err)
		}
		if bytes.IndexByte(line, '\n') >= 0 {
			return fault.New("", fault.Internal, "", errors.New("an event has a line break in it"))
		}
		link = contract.LinkOf(line)
		p.lines[i], p.links[i] = line, link
	}
	return nil
}

// divide returns the indexes at which the plan's messages end: each message holds as many
// events as fit. Events that must be stored together are in one message; whole is false if
// they do not fit into one.
func (p *plan) divide() (ends []int, whole bool) {
	whole = true
	size := 0 // bytes in the message that is being filled
	for at := 0; at < len(p.lines); {
		end, unit := at+1, len(p.lines[at])+1
		for end < len(p.lines) && p.tied[end] && !defence.Off(defence.LogBatch) {
			if unit += len(p.lines[end]) + 1; unit > messageBytes {
				whole = false
				unit -= len(p.lines[end]) + 1
				break
			}
			end++
		}
		if size > 0 && (size+unit > messageBytes || defence.Off(defence.LogBatch)) {
			ends, size = append(ends, at), 0
		}
		size, at = size+unit, end
	}
	return append(ends, len(p.lines)), whole
}

// message makes the message that holds the plan's events from the index from up to to.
func (l *Log) message(p *plan, from, to int) *nats.Msg {
	m := &nats.Msg{Header: nats.Header{ownerHeader: {l.owner}}}
	if to == from+1 {
		m.Subject, m.Data = contract.SubjectEvent(p.events[from]), p.lines[from]
		return m
	}
	m.Subject, m.Data = contract.SubjectEvents(l.cid), bytes.Join(p.lines[from:to], []byte{'\n'})
	return m
}

// decode reads the events of a message that are behind sequence after, limit at most;
// there is at least one, the message's last. What comes before them is not looked at, so
// that one event of many costs what one costs.
func decode(h nats.Header, position string, data []byte, after uint64, limit int) ([]stored, error) {
	p, err := strconv.ParseUint(position, 10, 64)
	if err != nil {
		return nil, broken("position %.40q: %w", position, err)
	}
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	e, err := contract.UnmarshalEvent(line)
	more, skip := bytes.Count(data, []byte{'\n'}), 0
	if after >= e.Sequence { // they follow each other, which is seen where they do not
		skip = int(min(after+1-e.Sequence, uint64(more)))
	}
	out := make([]stored, 0, min(limit, 1+more-skip))
	at := 0
	for line := range linesOf(data) {
		if at >= skip && at > 0 && err == nil {
			e, err = contract.UnmarshalEvent(line)
		}
		if err != nil {
			return nil, broken("message at position %d: %w", p, err)
		}
		if at++; at <= skip {
			continue
		}
		out = append(out, stored{event: e, position: p, more: at <= more, link: contract.LinkOf(line), size: len(line), owner: h.Get(ownerHeader)})
		if len(out) == limit {
			break
		}
	}
	return out, nil
}

// ends are the sequences of a message's first event and its last.
func ends(data []byte) (first, last uint64, err error) {
	line, _, several := bytes.Cut(data, []byte{'\n'})
	e, err := contract.UnmarshalEvent(line)
	if err != nil || !several {
		return e.Sequence, e.Sequence, err
	}
	z, err := contract.UnmarshalEvent(data[bytes.LastIndexByte(data, '\n')+1:])
	return e.Sequence, z.Sequence, err
}

// linesOf yields the events of a message as they are stored.
func linesOf(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			line, rest, more := bytes.Cut(data, []byte{'\n'})
			if !yield(line) || !more {
				return
			}
			data = rest
		}
	}
}

// events yields a message once for each of its events, with the data of that event only.
func events(m bus.Message) iter.Seq[bus.Message] {
	return func(yield func(bus.Message) bool) {
		for line := range linesOf(m.Data) {
			m.Data = line
			if !yield(m) {
				return
			}
		}
	}
}
