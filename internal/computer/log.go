package computer

import (
	"context"
	"iter"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Act implements control.Computer.
func (c *Computer) Act(ctx context.Context, a view.Action) (view.Acted, error) {
	const op = "computer.Act"
	info, ok := contract.Lookup(a.Type)
	if !ok || !info.Action {
		return view.Acted{}, fault.New(op, fault.Denied, "", &contract.FieldError{Field: "type", Reason: "is not something a person can do"})
	}
	switch data := a.Data.(type) {
	case *contract.PromptSubmitted:
		run, seq, err := c.runs.Submit(ctx, dispatch.Prompt{ID: a.ID, By: a.By, Text: data.Text, Model: data.Model, Budget: data.Budget})
		return view.Acted{Run: run, Sequence: seq}, err
	case *contract.RunCommanded:
		seq, err := c.runs.Command(ctx, a.By, a.Run, data.Command)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	case *contract.RunSteered:
		seq, err := c.runs.Steer(ctx, a.By, a.Run, data.Text)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	case *contract.QuestionAnswered:
		seq, err := c.runs.Answer(ctx, a.By, a.Run, data.Question, data.Answer)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	}
	events, err := c.log.Append(ctx, contract.Draft{
		ID: a.ID, Actor: a.By, Type: a.Type, Subject: a.Subject, Run: a.Run, Data: a.Data,
	})
	if err != nil {
		return view.Acted{}, err
	}
	return view.Acted{Sequence: events[0].Sequence}, nil
}

// Events implements control.Streams.
func (c *Computer) Events(ctx context.Context, q view.EventQuery) (view.EventPage, error) {
	if q.Limit <= 0 || q.Limit > maxEvents {
		q.Limit = maxEvents
	}
	if _, err := c.log.Settled(ctx); err != nil {
		return view.EventPage{}, err
	}
	if !q.Whole() {
		return c.past(ctx, q)
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

// past answers from the state's indexes, and from the log for the few events
// that are not projected yet: a projector that lags, or has stopped, hides
// nothing.
func (c *Computer) past(ctx context.Context, q view.EventQuery) (view.EventPage, error) {
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

// maxEvents is how many events a page holds at most.
const maxEvents = 500

// Follow implements control.Streams.
func (c *Computer) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return c.log.Follow(ctx, after)
}

// Appended implements control.History. Data that stand in a blob count with its
// size; one that is lost counts as the longest there can be.
func (c *Computer) Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return 0, 0, err
	}
	got, err := c.state.Appended(ctx, since)
	if err != nil {
		return 0, 0, err
	}
	for ref, n := range got.Blobs {
		size, err := c.machine.Blobs.Stat(ctx, c.cid, ref)
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
func (c *Computer) Last() uint64 { return c.log.Last() }
