package runspace

import (
	"context"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Past answers the dispatcher's questions about the past.
type Past struct {
	Log   *ledger.Log
	State *state.Store
	// Page returns a page of a run's events.
	Page func(ctx context.Context, q view.EventQuery) (view.EventPage, error)
}

// Unfinished implements ports.Past.
func (p Past) Unfinished(ctx context.Context) ([]string, error) {
	if err := p.State.CaughtUp(ctx, p.Log); err != nil {
		return nil, err
	}
	var out []string
	for before := uint64(0); ; {
		runs, err := p.State.Runs(ctx, state.RunFilter{Open: true, Before: before, Limit: state.MaxPage})
		if err != nil {
			return nil, err
		}
		if len(runs) == 0 {
			slices.Reverse(out)
			return out, nil
		}
		for _, r := range runs {
			out, before = append(out, r.ID), r.Seq
		}
	}
}

// Recent implements ports.Past.
func (p Past) Recent(ctx context.Context, most int) ([]state.Run, error) {
	runs, err := p.State.Runs(ctx, state.RunFilter{Limit: 4 * most})
	if err != nil {
		return nil, err
	}
	var out []state.Run
	for _, r := range runs {
		if !r.Ended.IsZero() && len(out) < most {
			out = append(out, r)
		}
	}
	return out, nil
}

// RunEvents implements ports.Past.
func (p Past) RunEvents(ctx context.Context, run string, after uint64) ([]contract.Event, uint64, bool, error) {
	page, err := p.Page(ctx, view.EventQuery{Run: run, After: after})
	return page.Events, page.Next, page.More, err
}

// GiveUp appends a cancellation to every run that was interrupted, which takes effect when
// the run is resumed.
func GiveUp(ctx context.Context, log *ledger.Log, past Past) error {
	open, err := past.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, run := range open {
		_, err := log.Append(ctx, contract.Draft{
			Actor: contract.Person(""), Type: "run.commanded", Run: run, Data: contract.RunCommanded{Command: contract.CommandCancel},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
