package computer

import (
	"context"
	"iter"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Act implements control.Log.
func (c *Computer) Act(ctx context.Context, a view.Action) (view.Acted, error) {
	const op = "computer.Act"
	info, ok := contract.Lookup(a.Type)
	if !ok || !info.Browser {
		return view.Acted{}, fault.New(op, fault.Denied, "", &contract.FieldError{Field: "type", Reason: "is not something a person can do"})
	}
	switch data := a.Data.(type) {
	case *contract.PromptSubmitted:
		run, seq, err := c.runs.Submit(ctx, dispatch.Prompt{ID: a.ID, User: a.User, Text: data.Text, Model: data.Model, Budget: data.Budget})
		return view.Acted{Run: run, Sequence: seq}, err
	case *contract.RunCommanded:
		seq, err := c.runs.Command(ctx, a.User, a.Run, data.Command)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	case *contract.RunSteered:
		seq, err := c.runs.Steer(ctx, a.User, a.Run, data.Text)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	case *contract.QuestionAnswered:
		seq, err := c.runs.Answer(ctx, a.User, a.Run, data.Question, data.Answer)
		return view.Acted{Run: a.Run, Sequence: seq}, err
	}
	events, err := c.log.Append(ctx, contract.Draft{
		ID: a.ID, Role: contract.RoleUser, User: a.User, Type: a.Type, Subject: a.Subject, Run: a.Run, Data: a.Data,
	})
	if err != nil {
		return view.Acted{}, err
	}
	return view.Acted{Sequence: events[0].Sequence}, nil
}

// Events implements control.Log. The log itself is read, so a projector that
// lags hides nothing.
func (c *Computer) Events(ctx context.Context, after uint64, limit int) ([]contract.Event, uint64, error) {
	events, err := c.log.Read(ctx, after, min(limit, 500))
	return events, c.log.Last(), err
}

// Follow implements control.Log.
func (c *Computer) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return c.log.Follow(ctx, after)
}

// Appended implements control.Log. Data that stand in a blob count with its
// size; one that is lost counts as the longest there can be.
func (c *Computer) Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error) {
	if err := c.caughtUp(ctx); err != nil {
		return 0, 0, err
	}
	got, err := c.state.Appended(ctx, contract.Source(c.cid, contract.RoleUser), since)
	if err != nil {
		return 0, 0, err
	}
	for ref, n := range got.Blobs {
		size, err := c.host.Blobs.Stat(ctx, c.cid, ref)
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

// Last implements control.Log.
func (c *Computer) Last() uint64 { return c.log.Last() }
