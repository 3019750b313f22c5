package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
)

// kept is what the computer keeps now, as a run that begins pins it: loops that resume are told the same.
func (r *run) kept(ctx context.Context) ([]contract.Fact, error) {
	if r.dispatcher.options.Memory == nil {
		return nil, nil
	}
	facts, err := r.dispatcher.options.Memory.Kept(ctx)
	if err != nil {
		return nil, err
	}
	var out []contract.Fact
	for _, f := range facts {
		out = append(out, f.Fact)
	}
	return out[:min(len(out), contract.MaxFacts)], nil
}

// KeptSince implements task.Run.
func (r *run) KeptSince(ctx context.Context) ([]string, error) {
	if r.dispatcher.options.Memory == nil {
		return nil, nil
	}
	r.mu.Lock()
	opened, pinned := r.story.Opened, r.story.Facts
	r.mu.Unlock()
	facts, err := r.dispatcher.options.Memory.Since(ctx, opened)
	if err != nil {
		return nil, err
	}
	return summary.KeptSince(pinned, facts), nil
}

// remember keeps words of the user for a Director.
func (a *directorAPI) remember(ctx context.Context, _ *http.Request, in director.Remember) (any, error) {
	if in.Call == "" || len(in.Call) > 128 {
		return nil, fault.New("", fault.Invalid, "", &contract.FieldError{Field: "call", Reason: "is required"})
	}
	text, err := a.run.note(ctx, contract.DirectorOf(a.run.story.ID), in.Call, in.Words)
	return director.Remembered{Text: text}, err
}

// rememberTool keeps words of the user for an Associate: one that does a whole prompt has no Director that would.
func (d *Dispatcher) rememberTool() catalogue.HostTool {
	return catalogue.HostTool{Tool: director.RememberTool(tool.Director, tool.Agent), Call: func(ctx context.Context, c catalogue.HostCall) (tool.Result, error) {
		var in director.Remember
		if err := json.Unmarshal(c.Args, &in); err != nil {
			return tool.Failed("%v", err), nil
		}
		r, err := d.find(ctx, c.Run)
		if err != nil {
			return tool.Result{}, fault.Wrap("dispatch.remember", err)
		}
		// The same words again are the same event, whichever call has them.
		text, err := r.note(ctx, contract.AssociateOf(c.Task), contract.DeriveID(c.Task, in.Words), in.Words)
		if fault.Is(err, fault.Invalid) || fault.Is(err, fault.Exhausted) || fault.Is(err, fault.Denied) {
			return tool.Failed("%s", fault.Told(err)), nil
		}
		return tool.Result{OK: true, Output: text}, err
	}}
}

// note keeps words of the user. A model names them, and may name no others: the host looks for them in what the
// log has of what the user said to this run.
func (r *run) note(ctx context.Context, by contract.Actor, call, words string) (string, error) {
	if r.dispatcher.options.Memory == nil {
		return "", fault.New("", fault.Denied, "", errors.New("this computer keeps nothing"))
	}
	said, err := r.saidByPeople(ctx)
	if err != nil {
		return "", err
	}
	source, err := summary.Source(said, words)
	if defence.Off(defence.MemoryWords) {
		source, err = r.story.Cause, nil
	}
	if err != nil {
		return "", fault.New("", fault.Invalid, "", err)
	}
	f, err := r.dispatcher.options.Memory.Remember(ctx, contract.Draft{ID: summary.Noted(r.story.ID, call), Actor: by, Type: "memory.remembered",
		Subject: r.story.ID, Causation: source, Data: &contract.MemoryRemembered{Text: words, From: []string{source}}}, r.Append)
	if err != nil {
		return "", err
	}
	return summary.DescribeNoted(f.Text), nil
}

// saidByPeople is what people said to the run in words of their own, oldest first. The choices of a question, and its
// default, are the Director's words.
func (r *run) saidByPeople(ctx context.Context) ([]summary.Said, error) {
	offered := map[string][]string{}
	var out []summary.Said
	for after, more := uint64(0), true; more; {
		events, next, again, err := r.dispatcher.options.Past.RunEvents(ctx, r.story.ID, after)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.Type != "prompt.submitted" && e.Type != "run.steered" && e.Type != "question.asked" && e.Type != "question.answered" {
				continue
			}
			p, why, err := r.dispatcher.payload(ctx, e)
			if err != nil {
				return nil, err
			}
			if why != nil {
				continue // it is lost, and nothing can be quoted of it
			}
			switch p := p.(type) {
			case *contract.QuestionAsked:
				offered[p.Question.ID] = append(slices.Clone(p.Question.Choices), p.Question.Default)
			case *contract.PromptSubmitted:
				out = append(out, summary.Said{Event: e.ID, Text: p.Text})
			case *contract.RunSteered:
				out = append(out, summary.Said{Event: e.ID, Text: p.Text})
			case *contract.QuestionAnswered:
				if !p.Default && e.Kind().Client() && !slices.Contains(offered[p.Question], p.Answer) {
					out = append(out, summary.Said{Event: e.ID, Text: p.Answer})
				}
			}
		}
		after, more = next, again
	}
	return out, nil
}
