package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

const (
	maxPage     = 500
	pageBytes   = 4 << 20
	readTimeout = 15 * time.Second
	readTry     = 300 * time.Millisecond // how long the first try waits, doubled each time: an answer may be lost with its connection
	bookmarkCap = 256
	ownerHeader = "Choir-Owner"
)

// Read returns up to limit events behind sequence after, oldest first, without gaps. It
// returns at most 500, which is also what limit 0 means, and fewer, or none, when the log
// ends.
func (l *Log) Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error) {
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	l.mu.Lock()
	last, position := l.newest.event.Sequence, l.newest.position
	page, ok := l.recent.after(after, limit)
	if ok || after >= last {
		out := unwrap(page)
		l.mu.Unlock()
		return out, nil
	}
	l.mu.Unlock()
	page, err := l.fetch(ctx, after, last, position, limit)
	if err != nil {
		return nil, fault.Wrap("ledger.Read", err)
	}
	return unwrap(page), nil
}

func unwrap(page []stored) []contract.Event {
	out := make([]contract.Event, len(page))
	for i, s := range page {
		out[i] = s.event
	}
	return out
}

// Follow yields every event behind sequence after, in order and without gaps,
// and waits for more until ctx ends or the log is closed or fenced. The last
// pair carries the error that ended it.
func (l *Log) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		f := &follower{at: after}
		l.mu.Lock()
		l.recent.followers[f] = struct{}{}
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			delete(l.recent.followers, f)
			l.mu.Unlock()
		}()
		for {
			l.mu.Lock()
			f.at = after
			last, changed, stopped := l.newest.event.Sequence, l.changed, l.stopped
			l.mu.Unlock()
			if after >= last {
				if stopped != nil {
					yield(contract.Event{}, stopped)
					return
				}
				select {
				case <-ctx.Done():
					yield(contract.Event{}, ctx.Err())
					return
				case <-changed:
				}
				continue
			}
			page, err := l.Read(ctx, after, 0)
			if err != nil {
				yield(contract.Event{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Sequence
			}
		}
	}
}

// Data returns an event's data, which it reads from a blob if the event names one.
func (l *Log) Data(ctx context.Context, e contract.Event) (json.RawMessage, error) {
	const op = "ledger.Data"
	if e.DataRef == "" {
		return e.Data, nil
	}
	if l.blobs == nil {
		return nil, fault.New(op, fault.Missing, "", errors.New("this log was opened without blobs"))
	}
	r, size, err := l.blobs.Open(ctx, e.Computer, e.DataRef)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if size > contract.MaxTurn {
		return nil, errors.Join(fault.New(op, fault.Invalid, "", fmt.Errorf("the data of event %d are %d bytes long", e.Sequence, size)), r.Close())
	}
	b, err := io.ReadAll(io.LimitReader(r, contract.MaxTurn+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return b, nil
}

// Payload decodes and validates an event's data, which it reads from a blob if the event
// names one.
func (l *Log) Payload(ctx context.Context, e contract.Event) (contract.Payload, error) {
	data, err := l.Data(ctx, e)
	if err != nil {
		return nil, err
	}
	p, err := contract.DecodeData(e.Type, data)
	if err != nil {
		return nil, fault.New("ledger.Payload", fault.Invalid, "", err)
	}
	return p, nil
}

// fetch reads up to limit events behind after from the stream. There is at least one,
// because last, whose message is at position, is behind after.
func (l *Log) fetch(ctx context.Context, after, last, position uint64, limit int) ([]stored, error) {
	from, err := l.locate(ctx, after+1, last, position)
	if err != nil {
		return nil, err
	}
	limit = int(min(uint64(limit), last-after))
	messages := limit
	if there := position - from + 1; there < last-after { // some messages hold several events, so fewer are asked for
		messages = int((uint64(limit)*there-1)/(last-after)) + 1
	}
	page, err := l.page(ctx, from, messages, after, limit)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		// Pages come from any server that keeps the log, and one may be behind.
		// What is missing is for the leader to say.
		m, err := l.get(ctx, getRequest{Seq: from, NextFor: l.filter})
		if err == nil && m != nil {
			page, err = decode(m.header, m.position, m.data, after, limit)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, s := range page {
		if want := after + 1 + uint64(i); s.event.Sequence != want {
			return nil, broken("event %d follows where %d belongs", s.event.Sequence, want)
		}
		if i > 0 {
			if err := s.follows(page[i-1]); err != nil {
				return nil, err
			}
		}
	}
	if len(page) == 0 {
		return nil, broken("event %d is missing", after+1)
	}
	end := page[len(page)-1]
	l.mu.Lock()
	if len(l.bookmarks) >= bookmarkCap {
		for k := range l.bookmarks { // whichever comes first
			delete(l.bookmarks, k)
			break
		}
	}
	l.bookmarks[end.event.Sequence] = end.position + 1
	if end.more {
		l.bookmarks[end.event.Sequence] = end.position
	}
	l.mu.Unlock()
	return page, nil
}

func broken(format string, args ...any) error {
	return fault.New("", fault.Damaged, "Stop choir up and run choir recover; nothing is repaired by itself.", fmt.Errorf(format, args...))
}

// locate finds the position from which to read the event with sequence want: that of its
// message, or one from which on its message is the next of this log. Where each message
// holds one event, and none of another computer lies between them, the first guess is
// right.
func (l *Log) locate(ctx context.Context, want, last, position uint64) (uint64, error) {
	l.mu.Lock()
	mark, ok := l.bookmarks[want-1]
	l.mu.Unlock()
	if ok {
		return mark, nil
	}
	if want == 1 {
		return 1, nil
	}
	low, high := uint64(1), position // the message is at one of them or between
	first, newest := uint64(1), last // the oldest event that can be at low, and the newest that can be at high
	for guess := true; low <= high; guess = !guess {
		probe := low + (high-low)/2
		if guess && newest > first {
			probe = low + (want-first)*(high-low)/(newest-first)
		}
		found, err := l.get(ctx, getRequest{Seq: probe, NextFor: l.filter})
		if err != nil {
			return 0, err
		}
		if found == nil {
			return 0, broken("nothing at or behind position %d, though the log ends at %d", probe, position)
		}
		at, err := strconv.ParseUint(found.position, 10, 64)
		if err != nil {
			return 0, broken("position %.40q: %w", found.position, err)
		}
		a, z, err := ends(found.data)
		switch {
		case err != nil:
			return 0, broken("message at position %d: %w", at, err)
		case z < want:
			low, first = at+1, z+1
		case a > want:
			high, newest = probe-1, a-1
		default:
			return at, nil
		}
	}
	return 0, broken("event %d is missing", want)
}

// getRequest asks the server for stored messages.
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// tries repeats a read whose answer does not come, with a longer time each try.
func tries[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for patience := readTry; ; patience *= 2 {
		try, done := context.WithTimeout(ctx, patience)
		out, err := read(try)
		again := err != nil && try.Err() != nil && ctx.Err() == nil
		done()
		if !again {
			return out, err
		}
	}
}

// page reads up to n of the log's messages at or behind position from, and of their
// events those behind sequence after, limit at most.
func (l *Log) page(ctx context.Context, from uint64, n int, after uint64, limit int) ([]stored, error) {
	return tries(ctx, func(ctx context.Context) ([]stored, error) { return l.pageOnce(ctx, from, n, after, limit) })
}

func (l *Log) pageOnce(ctx context.Context, from uint64, n int, after uint64, limit int) ([]stored, error) {
	body, err := json.Marshal(getRequest{Seq: from, NextFor: l.filter, Batch: n, MaxBytes: pageBytes})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	failed, _ := l.failedReads()
	inbox := l.conn.NewRespInbox()
	sub, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only once the connection is gone
	if err := l.conn.PublishRequest("$JS.API.DIRECT.GET."+contract.StreamLog(l.cid), inbox, body); err != nil {
		return nil, unavailable(err)
	}
	out := make([]stored, 0, n)
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, unavailable(err)
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			events, err := decode(msg.Header, msg.Header.Get("Nats-Sequence"), msg.Data, after, limit-len(out))
			if err != nil {
				return nil, err
			}
			out = append(out, events...)
			if n--; n == 0 || len(out) == limit {
				return out, nil
			}
		case "204", "404":
			return out, l.missing(failed)
		default:
			return nil, unavailable(fmt.Errorf("read the stream: %s %s", status, msg.Header.Get("Description")))
		}
	}
}

// missing decides what it means that the store did not find a message. It is no error if
// the message does not exist; it is one if a read failed meanwhile: failed is how many
// reads had failed before.
func (l *Log) missing(failed uint64) error {
	now, why := l.failedReads()
	if now == failed {
		return nil
	}
	return fault.New("", fault.Unavailable, fault.HintOf(why), why)
}

// next returns the events of the log's first message at or behind a position; none
// when there is no such message.
func (l *Log) next(ctx context.Context, position uint64) ([]stored, error) {
	return l.all(ctx, getRequest{Seq: position, NextFor: l.filter})
}

// lastMessage returns the events of the log's newest message.
func (l *Log) lastMessage(ctx context.Context) ([]stored, error) {
	return l.all(ctx, getRequest{LastFor: l.filter})
}

func (l *Log) all(ctx context.Context, req getRequest) ([]stored, error) {
	m, err := l.get(ctx, req)
	if err != nil || m == nil {
		return nil, err
	}
	return decode(m.header, m.position, m.data, 0, math.MaxInt)
}

// kept is a message as the server has it.
type kept struct {
	header   nats.Header
	position string
	data     []byte
}

// get reads one message from the stream's leader, which knows of every
// acknowledged write; nil when there is none.
func (l *Log) get(ctx context.Context, req getRequest) (*kept, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	failed, _ := l.failedReads()
	msg, err := tries(ctx, func(ctx context.Context) (*nats.Msg, error) {
		return l.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+contract.StreamLog(l.cid), body)
	})
	if err != nil {
		return nil, unavailable(err)
	}
	var reply struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Seq  uint64 `json:"seq"`
			Hdrs []byte `json:"hdrs"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return nil, unavailable(fmt.Errorf("decode the server's reply: %w", err))
	}
	switch {
	case reply.Error != nil && reply.Error.Code == 404:
		return nil, l.missing(failed)
	case reply.Error != nil:
		return nil, unavailable(reply.Error)
	case reply.Message == nil:
		return nil, unavailable(errors.New("the server's reply holds no message"))
	}
	header, err := nats.DecodeHeadersMsg(reply.Message.Hdrs)
	if err != nil {
		return nil, broken("headers at position %d: %w", reply.Message.Seq, err)
	}
	return &kept{header, strconv.FormatUint(reply.Message.Seq, 10), reply.Message.Data}, nil
}

func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.New("", fault.Unavailable, "Try again; look at the log if it stays so.", err)
}
