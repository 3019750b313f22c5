// Package facts answers the methods about what a computer was told to keep.
package facts

import (
	"context"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/memory"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Facts answers the methods of one computer.
type Facts struct {
	Log    *ledger.Log
	State  *state.Store
	Memory *memory.Memory
}

// Of are facts as they are shown.
func Of(rows []state.Fact) []view.Fact {
	out := make([]view.Fact, 0, len(rows))
	for _, f := range rows {
		out = append(out, view.Fact{ID: f.ID, Text: f.Text, From: f.From, Run: f.Run, Actor: f.Actor, User: f.User, Time: past.When(f.Time), Kept: f.Kept, Sequence: f.Seq})
	}
	return out
}

func (a Facts) list(ctx context.Context, all bool, before uint64, limit int) ([]view.Fact, bool, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return nil, false, err
	}
	rows, err := a.State.Facts(ctx, state.FactFilter{Kept: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	return Of(rows[:min(len(rows), limit)]), len(rows) > limit, nil
}

func (a Facts) remember(ctx context.Context, by contract.Actor, r view.Remember) (view.Fact, error) {
	kept, err := a.Memory.Kept(ctx)
	if err != nil {
		return view.Fact{}, err
	}
	for i, from := range r.From {
		if len(memory.Following(kept, from)) == 0 {
			return view.Fact{}, fault.New("facts.Remember", fault.Invalid, "choir memory lists what is kept.", &contract.FieldError{Field: fmt.Sprintf("from[%d]", i), Reason: "is no fact that is kept"})
		}
	}
	f, err := a.Memory.Remember(ctx, contract.Draft{Actor: by, Type: "memory.remembered", Data: &contract.MemoryRemembered{Text: r.Text, From: r.From}}, a.Log.Append)
	if err != nil {
		return view.Fact{}, err
	}
	return Of([]state.Fact{f})[0], nil
}

// Bind binds the methods.
func (a Facts) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.MemoryList, func(ctx context.Context, _ rpc.Caller, in rpc.MemoryRequest) (rpc.List[view.Fact], error) {
		return rpc.Listed(a.list(ctx, in.All, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.MemoryRemember, func(ctx context.Context, who rpc.Caller, in rpc.RememberRequest) (view.Fact, error) {
		return a.remember(ctx, who.Actor, in.Body)
	})
	rpc.Bind(t, rpc.MemoryForget, func(ctx context.Context, who rpc.Caller, in rpc.OnFact) (view.Forgotten, error) {
		gone, err := a.Memory.Forget(ctx, who.Actor, in.Fact)
		return view.Forgotten{Facts: Of(gone)}, err
	})
}
