package computer

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
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

// Decide answers rpc.ApprovalAnswer.
func (c *Computer) Decide(ctx context.Context, by contract.Actor, id string, d view.Decision) (view.Acted, error) {
	run, seq, err := c.runs.Decide(ctx, by, id, d.Digest, d.Answer)
	return view.Acted{Run: run, Sequence: seq}, err
}
