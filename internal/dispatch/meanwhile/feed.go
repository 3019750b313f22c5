package meanwhile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Bounds of what a Feed keeps.
const (
	maxKept     = 2000 // events
	maxCompared = 64   // checkpoints
)

// Feed is what all watches of a computer read: its log, of which it keeps the newest events that may say that live files changed, and what
// checkpoints changed. Who follows the log anyway adds them, so that what a hundred loops want to know is read once. It is safe for concurrent use.
type Feed struct {
	log     Log
	changed func(ctx context.Context, from, to string) ([]contract.Change, error)

	seen atomic.Uint64 // last, for those who come later

	mu       sync.Mutex
	begin    uint64 // it has what there is behind this sequence
	last     uint64 // and up to this one
	events   []contract.Event
	payloads map[uint64]contract.Payload // of events, without the text of documents
	compared map[string]*comparison      // by commit
	order    []string                    // the commits of compared, oldest first
}

// comparison is what one checkpoint changed, once somebody has asked for it.
type comparison struct {
	mu      sync.Mutex
	done    bool
	changes []contract.Change
}

// NewFeed returns a Feed that has nothing.
func NewFeed(log Log, changed func(ctx context.Context, from, to string) ([]contract.Change, error)) *Feed {
	f := &Feed{log: log, changed: changed}
	f.Forget()
	return f
}

// Forget lets go of all that is kept.
func (f *Feed) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin, f.last, f.events, f.payloads = 0, 0, nil, map[uint64]contract.Payload{}
	f.seen.Store(0)
	f.compared, f.order = map[string]*comparison{}, nil
}

// Begin tells that somebody follows the log from behind a sequence on.
func (f *Feed) Begin(at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == 0 {
		f.begin, f.last = at, at
		f.seen.Store(at)
	}
}

// Add tells of an event, by somebody whose event before it was at prev, and reports whether it may say that live files changed.
func (f *Feed) Add(prev uint64, e contract.Event) bool {
	tells := Tells(e.Type)
	if e.Sequence <= f.seen.Load() { // one of many followers was here first
		return tells
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Sequence <= f.last {
		return tells
	}
	if prev > f.last { // who followed before has stopped, and nobody saw what is between
		f.begin, f.events = prev, nil
		clear(f.payloads)
	}
	f.last = e.Sequence
	f.seen.Store(f.last)
	if tells || e.Type == publishes {
		e.Data = nil // it may be much, and hardly anybody asks
		f.events = append(f.events, e)
	}
	if over := len(f.events) - maxKept; over > 0 {
		for _, e := range f.events[:over] {
			delete(f.payloads, e.Sequence)
		}
		f.begin = f.events[over-1].Sequence
		f.events = append(f.events[:0], f.events[over:]...)
	}
	return tells
}

// Read returns at most limit events behind a sequence, for who wants them up to another; those that tell nothing may be left out.
func (f *Feed) Read(ctx context.Context, after, upTo uint64, limit int) ([]contract.Event, error) {
	f.mu.Lock()
	if f.last > 0 && f.begin <= after && upTo <= f.last {
		defer f.mu.Unlock()
		i, _ := slices.BinarySearchFunc(f.events, after+1, func(e contract.Event, at uint64) int {
			return int(min(max(int64(e.Sequence)-int64(at), -1), 1))
		})
		return slices.Clone(f.events[i:min(len(f.events), i+limit)]), nil
	}
	f.mu.Unlock()
	return f.log.Read(ctx, after, limit)
}

// Payload returns what an event says, of a document's revision without its text.
func (f *Feed) Payload(ctx context.Context, e contract.Event) (contract.Payload, error) {
	f.mu.Lock()
	p, known := f.payloads[e.Sequence]
	f.mu.Unlock()
	if known {
		return p, nil
	}
	if e.Data == nil && e.DataRef == "" { // it is one of ours
		whole, err := f.log.Read(ctx, e.Sequence-1, 1)
		switch {
		case err != nil:
			return nil, err
		case len(whole) != 1 || whole[0].Sequence != e.Sequence:
			return nil, fault.New("meanwhile.Payload", fault.Unavailable, "", fmt.Errorf("event %d is not in the log now", e.Sequence))
		}
		e = whole[0]
	}
	p, err := f.log.Payload(ctx, e)
	if err != nil {
		return nil, err
	}
	if d, ok := p.(*contract.DocumentRevised); ok {
		short := *d
		short.Body = "" // megabytes, of which nobody asks here
		p = &short
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begin < e.Sequence && e.Sequence <= f.last {
		f.payloads[e.Sequence] = p
	}
	return p, nil
}

// Changed lists what a checkpoint has that the one before it has not; fault.NotFound, if one of them is gone, is nothing.
func (f *Feed) Changed(ctx context.Context, parent, commit string) ([]contract.Change, error) {
	f.mu.Lock()
	c := f.compared[commit]
	if c == nil {
		c = &comparison{}
		f.compared[commit] = c
		if f.order = append(f.order, commit); len(f.order) > maxCompared {
			delete(f.compared, f.order[0])
			f.order = f.order[1:]
		}
	}
	f.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return c.changes, nil
	}
	changes, err := f.changed(ctx, parent, commit)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	c.done, c.changes = true, changes
	return changes, nil
}
