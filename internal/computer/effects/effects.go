// Package effects answers the methods about what a computer's tasks changed outside of it.
package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/webpage"
)

// maxText bounds arguments and answers that are shown, in bytes.
const maxText = 256 << 10

// Blobs has the arguments and answers.
type Blobs interface {
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// Effects answers the methods of one computer.
type Effects struct {
	CID   contract.CID
	Log   *ledger.Log
	State *state.Store
	Blobs func() Blobs
	// Act takes a prompt in a person's name.
	Act func(context.Context, view.Action) (view.Acted, error)
}

func (a Effects) list(ctx context.Context, in rpc.EffectsRequest) ([]view.Effect, bool, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return nil, false, err
	}
	rows, err := a.State.Effects(ctx, state.EffectFilter{Run: in.Run, Outcome: in.Outcome, Before: in.Before, Limit: min(in.Limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	out := make([]view.Effect, 0, len(rows))
	for _, e := range rows[:min(len(rows), in.Limit)] {
		out = append(out, past.EffectOf(e))
	}
	return out, len(rows) > in.Limit, nil
}

func (a Effects) find(ctx context.Context, id string) (state.Effect, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return state.Effect{}, err
	}
	rows, err := a.State.Effects(ctx, state.EffectFilter{ID: id, Limit: 1})
	if err == nil && len(rows) == 0 {
		err = fault.New("effects", fault.NotFound, "choir effects lists them.", fmt.Errorf("there is no effect %s", id))
	}
	if err != nil {
		return state.Effect{}, err
	}
	return rows[0], nil
}

func (a Effects) show(ctx context.Context, id string) (view.Effect, error) {
	e, err := a.find(ctx, id)
	if err != nil {
		return view.Effect{}, err
	}
	v := past.EffectOf(e)
	if v.Arguments, err = a.text(ctx, v.Args); err != nil {
		return v, err
	}
	if v.Answered = webpage.Seen(v.Detail); v.Answer != "" {
		v.Answered, err = a.text(ctx, v.Answer)
	}
	return v, err
}

// text is what a blob holds, or the beginning of it, with nothing in it that hides from who reads it.
func (a Effects) text(ctx context.Context, ref contract.BlobRef) (string, error) {
	f, _, err := a.Blobs().Open(ctx, a.CID, ref)
	if err != nil {
		return "", fault.Wrap("effects.Show", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	return contract.Clip(webpage.Seen(contract.Clip(string(b), maxText)), maxText), fault.Wrap("effects.Show", errors.Join(err, f.Close()))
}

// resolve records a person's word. It is refused if the effect is not, or no longer, unknown.
func (a Effects) resolve(ctx context.Context, by contract.Actor, id string, r view.ResolveEffect) (view.Effect, error) {
	const op = "effects.Resolve"
	e, err := a.find(ctx, id)
	if err != nil {
		return view.Effect{}, err
	}
	if v := past.EffectOf(e); v.Outcome != string(contract.EffectUnknown) {
		return view.Effect{}, fault.New(op, fault.Conflict, "Only what is unknown can be resolved, once.", fmt.Errorf("the effect is %s", cmp.Or(v.Outcome, "known")))
	}
	_, err = a.Log.Append(ctx, contract.Draft{Actor: by, Type: "effect.resolved", Subject: contract.EffectSubject(id), Run: e.Run, Task: e.Task,
		Data: &contract.EffectResolved{Effect: id, Found: r.Found, Note: r.Note}, Expect: &contract.Expect{Last: e.Changed}})
	if err != nil {
		return view.Effect{}, fault.Wrap(op, err)
	}
	return a.show(ctx, id)
}

// compensation is what is asked for. It names the effect and nothing that a model or a service wrote: the words of a prompt
// are the user's own, and what a prompt names may be read.
func compensation(id, words string) string {
	text := fmt.Sprintf("Undo outside, if it can be undone there, what the run that this one continues did with the effect %s, of which you are told in its record. "+
		"Look first how it stands now. Do nothing else outside. Say what is undone, what is not, and what I have to do myself.", id)
	if words != "" {
		text += "\n" + words
	}
	return text
}

// compensate submits a prompt that continues the effect's run and asks to undo the effect. It is refused while that run goes on.
func (a Effects) compensate(ctx context.Context, by contract.Actor, id string, c view.CompensateEffect) (view.Acted, error) {
	e, err := a.find(ctx, id)
	if err != nil {
		return view.Acted{}, err
	}
	do := view.Action{ID: cmp.Or(c.ID, contract.NewID()), Type: "prompt.submitted", By: by, Data: &contract.PromptSubmitted{Text: compensation(e.Effect, c.Words), Continues: e.Run}}
	if err := do.Validate(); err != nil {
		return view.Acted{}, err
	}
	return a.Act(ctx, do.About())
}

// Bind binds the methods.
func (a Effects) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.EffectList, func(ctx context.Context, _ rpc.Caller, in rpc.EffectsRequest) (rpc.List[view.Effect], error) {
		return rpc.Listed(a.list(ctx, in))
	})
	rpc.Bind(t, rpc.EffectShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnEffect) (view.Effect, error) {
		return a.show(ctx, in.Effect)
	})
	rpc.Bind(t, rpc.EffectResolve, func(ctx context.Context, who rpc.Caller, in rpc.ResolveEffectRequest) (view.Effect, error) {
		return a.resolve(ctx, who.Actor, in.Effect, in.Body)
	})
	rpc.Bind(t, rpc.EffectCompensate, func(ctx context.Context, who rpc.Caller, in rpc.CompensateEffectRequest) (view.Acted, error) {
		return a.compensate(ctx, who.Actor, in.Effect, in.Body)
	})
}
