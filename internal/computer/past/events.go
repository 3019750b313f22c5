package past

import (
	"context"
	"iter"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Events implements control.Streams.
func (c *Past) Events(ctx context.Context, q view.EventQuery) (view.EventPage, error) {
	if q.Limit <= 0 || q.Limit > maxEvents {
		q.Limit = maxEvents
	}
	if !q.Whole() {
		return c.indexed(ctx, q)
	}
	events, err := c.log.Read(ctx, q.After, q.Limit)
	if err != nil {
		return view.EventPage{}, err
	}
	p := view.EventPage{Events: events, Next: q.After, Last: c.log.Last()}
	if n := len(events); n > 0 {
		p.Next = events[n-1].Sequence
	}
	p.More = len(events) > 0 && p.Next < p.Last
	return p, nil
}

// indexed answers from the state's indexes, and from the log for the few events that are
// not projected yet, so that a projector that is behind, or has stopped, hides nothing.
func (c *Past) indexed(ctx context.Context, q view.EventQuery) (view.EventPage, error) {
	covered := c.state.Last()
	p := view.EventPage{Events: []contract.Event{}, Last: c.log.Last()}
	rows, err := c.state.Events(ctx, state.EventFilter{After: q.After, Limit: q.Limit, Types: q.Types, Run: q.Run, Task: q.Task, Subject: q.Subject})
	if err != nil {
		return p, err
	}
	for _, r := range rows {
		p.Events = append(p.Events, r.Event)
	}
	if n := len(rows); n > 0 {
		p.Next = rows[n-1].Sequence
	}
	if p.More = len(rows) == q.Limit; p.More {
		return p, nil
	}
	for p.Next = max(p.Next, covered, q.After); p.Next < p.Last; {
		events, err := c.log.Read(ctx, p.Next, maxEvents)
		if err != nil {
			return p, err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			p.Next = e.Sequence
			if !q.Selects(e) {
				continue
			}
			p.Events = append(p.Events, e)
			if p.More = len(p.Events) == q.Limit; p.More {
				return p, nil
			}
		}
	}
	return p, nil
}

// maxEvents is the largest number of events in a page.
const maxEvents = 500

// Follow implements control.Streams.
func (c *Past) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return c.log.Follow(ctx, after)
}

// Appended implements control.History. An event whose data is in a blob counts with the
// blob's size; if that is lost, with the largest size that it can have.
func (c *Past) Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return 0, 0, err
	}
	got, err := c.state.Appended(ctx, since)
	if err != nil {
		return 0, 0, err
	}
	for ref, n := range got.Blobs {
		size, err := c.blobs.Stat(ctx, c.cid, ref)
		if fault.Is(err, fault.NotFound) {
			size, err = contract.MaxTurn, nil
		}
		if err != nil {
			return 0, 0, err
		}
		got.Bytes += int64(n) * size
	}
	return got.Events, got.Bytes, nil
}

// Last implements control.Streams.
func (c *Past) Last() uint64 { return c.log.Last() }
