// Package actions handles what a person does in a computer by an event of theirs: a prompt,
// a word to a run, an answer, a decision, a moved window. What concerns a run is passed to
// the dispatcher; the rest is only appended to the log.
package actions

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Actions handles the actions of one computer, once its runs are taken up.
type Actions struct {
	Log  *ledger.Log
	Runs *dispatch.Dispatcher
}

// Act appends a person's intention and starts what follows from it.
func (a *Actions) Act(ctx context.Context, do view.Action) (view.Acted, error) {
	const op = "actions.Act"
	info, ok := contract.Lookup(do.Type)
	if !ok || !info.Action {
		return view.Acted{}, fault.New(op, fault.Denied, "", &contract.FieldError{Field: "type", Reason: "is not something a person can do"})
	}
	switch data := do.Data.(type) {
	case *contract.PromptSubmitted:
		run, seq, err := a.Runs.Submit(ctx, dispatch.Prompt{ID: do.ID, By: do.By, Text: data.Text, Model: data.Model, Budget: data.Budget, Continues: data.Continues, Route: data.Route, Effort: data.Effort, Summarise: data.Summarise, Review: data.Review, Traceparent: do.Traceparent})
		return view.Acted{Run: run, Sequence: seq}, err
	case *contract.RunCommanded, *contract.RunSteered, *contract.ModelSwitched, *contract.QuestionAnswered:
		seq, err := a.Runs.Do(ctx, dispatch.Word{ID: do.ID, By: do.By, Run: do.Run}, data)
		return view.Acted{Run: do.Run, Sequence: seq}, err
	}
	events, err := a.Log.Append(ctx, contract.Draft{
		ID: do.ID, Actor: do.By, Type: do.Type, Subject: do.Subject, Run: do.Run, Data: do.Data,
	})
	if err != nil {
		return view.Acted{}, err
	}
	return view.Acted{Sequence: events[0].Sequence}, nil
}

// Decide answers rpc.ApprovalAnswer.
func (a *Actions) Decide(ctx context.Context, by contract.Actor, id string, d view.Decision) (view.Acted, error) {
	run, seq, err := a.Runs.Decide(ctx, by, id, d.Digest, d.Answer)
	return view.Acted{Run: run, Sequence: seq}, err
}

// Looked answers rpc.ReviewAnswer.
func (a *Actions) Looked(ctx context.Context, by contract.Actor, run, task string, l view.Looked) (view.Acted, error) {
	seq, err := a.Runs.Looked(ctx, by, run, task, contract.ReviewAnswered{Attempt: l.Attempt, Review: l.Review, Work: l.Work, Decision: l.Decision, Only: l.Only, Comments: l.Comments})
	return view.Acted{Run: run, Sequence: seq}, err
}

// Bind binds the methods.
func (a *Actions) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.Action, func(ctx context.Context, who rpc.Caller, in rpc.ActionRequest) (view.Acted, error) {
		do, err := in.Action(who.Actor)
		if err != nil {
			return view.Acted{}, err
		}
		return a.Act(ctx, do.About())
	})
	rpc.Bind(t, rpc.ReviewShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnReview) (view.Review, error) {
		return a.Runs.Review(ctx, in.Run, in.Task)
	})
	rpc.Bind(t, rpc.ReviewAnswer, func(ctx context.Context, who rpc.Caller, in rpc.LookedRequest) (view.Acted, error) {
		return a.Looked(ctx, who.Actor, in.Run, in.Task, in.Body)
	})
	rpc.Bind(t, rpc.ApprovalAnswer, func(ctx context.Context, who rpc.Caller, in rpc.DecideRequest) (view.Acted, error) {
		return a.Decide(ctx, who.Actor, in.Approval, in.Body)
	})
}
