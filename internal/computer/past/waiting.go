package past

import (
	"context"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// mostWaiting bounds what is shown of each kind of what waits for a person.
const mostWaiting = 100

// EffectOf is an effect as it is shown.
func EffectOf(e state.Effect) view.Effect {
	v := view.Effect{ID: e.Effect, Kind: e.Kind, Run: e.Run, Task: e.Task, Attempt: e.Attempt, Call: e.Call, Target: e.Target, What: e.What, Args: e.Args, Key: e.Key, Again: e.Again, Approval: e.Approval,
		Outcome: view.EffectOpen, Time: When(e.Time), Sequence: e.Seq}
	if e.Ended != nil {
		v.Outcome, v.Detail, v.Status, v.Answer = string(e.Ended.Outcome), e.Ended.Detail, e.Ended.Status, e.Ended.Answer
	}
	if e.Resolved != nil {
		v.Outcome, v.Found, v.Note, v.By = string(e.Resolved.Found.Outcome()), e.Resolved.Found, e.Resolved.Note, e.By
	}
	return v
}

// Waiting lists what waits for a person: what runs ask, and what stays.
func (c *Past) Waiting(ctx context.Context) ([]view.Waiting, error) { return c.waits(ctx, waiting) }

// Staying lists what stays until a person has dealt with it. What runs ask is with them (OpenRuns).
func (c *Past) Staying(ctx context.Context) ([]view.Waiting, error) { return c.waits(ctx, staying) }

type lister func(ctx context.Context, cid contract.CID, name string, s *state.Store) ([]view.Waiting, error)

func (c *Past) waits(ctx context.Context, list lister) ([]view.Waiting, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, err
	}
	row, err := c.state.Computer(ctx)
	if err != nil {
		return nil, err
	}
	return list(ctx, c.cid, row.Name, c.state)
}

// ReadWaiting lists what waits in a computer that sleeps, from its state's file, which nobody may have open.
func ReadWaiting(ctx context.Context, cid contract.CID, name, path string) (out []view.Waiting, err error) {
	err = state.ReadOnly(path, func(s *state.Store) (err error) {
		out, err = waiting(ctx, cid, name, s)
		return err
	})
	return out, err
}

func waiting(ctx context.Context, cid contract.CID, name string, s *state.Store) ([]view.Waiting, error) {
	asked, err := asking(ctx, cid, name, s)
	if err != nil {
		return nil, err
	}
	stays, err := staying(ctx, cid, name, s)
	return append(asked, stays...), err
}

// asking lists what runs that have not ended wait for, oldest first: what they may not do by themselves, and what their
// models ask.
func asking(ctx context.Context, cid contract.CID, name string, s *state.Store) ([]view.Waiting, error) {
	approvals, err := approvalsIn(ctx, s, state.ApprovalFilter{Open: true, Limit: mostWaiting})
	if err != nil {
		return nil, err
	}
	questions, err := s.Questions(ctx, "", true)
	if err != nil {
		return nil, err
	}
	all := []view.Waiting{}
	for _, a := range slices.Backward(approvals) {
		all = append(all, view.Waiting{Computer: cid, Name: name, Kind: view.WaitsApproval, Run: a.Run, Approval: &a})
	}
	for _, q := range questions[:min(len(questions), mostWaiting)] {
		asks := questionOf(q)
		all = append(all, view.Waiting{Computer: cid, Name: name, Kind: view.WaitsQuestion, Run: q.Run, Question: &asks})
	}
	out := []view.Waiting{}
	for _, w := range all {
		r, err := s.Run(ctx, w.Run)
		switch {
		case fault.Is(err, fault.NotFound) || err == nil && r.Status.Ended():
		case err != nil:
			return nil, err
		default:
			w.Prompt = r.Prompt
			out = append(out, w)
		}
	}
	return out, nil
}

func staying(ctx context.Context, cid contract.CID, name string, s *state.Store) ([]view.Waiting, error) {
	unknown, err := s.Effects(ctx, state.EffectFilter{Outcome: string(contract.EffectUnknown), Limit: mostWaiting})
	if err != nil {
		return nil, err
	}
	reviews, err := s.Reviews(ctx, state.ReviewFilter{Open: true, Limit: mostWaiting})
	if err != nil {
		return nil, err
	}
	out := make([]view.Waiting, 0, len(unknown)+len(reviews))
	for _, u := range unknown {
		e := EffectOf(u)
		w := view.Waiting{Computer: cid, Name: name, Kind: view.WaitsEffect, Effect: &e}
		r, err := s.Run(ctx, u.Run)
		if err != nil && !fault.Is(err, fault.NotFound) { // a prompt may be lost
			return nil, err
		}
		w.Prompt, w.Over = r.Prompt, r.Status.Ended()
		t, err := s.Task(ctx, u.Task)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		w.Goal = t.Goal
		out = append(out, w)
	}
	for _, r := range reviews {
		v := reviewOf(r)
		out = append(out, view.Waiting{Computer: cid, Name: name, Kind: view.WaitsReview, Prompt: r.Prompt, Goal: r.Goal, Review: &v})
	}
	return out, nil
}
