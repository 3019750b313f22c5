package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/state"
)

// earlier returns an ended run of this computer, as its log tells it. Whatever can't be read of it any more
// is left out.
func (d *Dispatcher) earlier(ctx context.Context, id string) (*story.Run, error) {
	s := story.New(id)
	for after, more := uint64(0), true; more; {
		events, next, again, err := d.options.Past.RunEvents(ctx, id, after)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			p, why, err := d.payload(ctx, e)
			switch {
			case err != nil:
				return nil, err
			case why != nil:
				s.Lose(e)
			case p != nil:
				s.Apply(e, p)
			}
		}
		after, more = next, again
	}
	switch {
	case s.Sequence == 0:
		return nil, fault.New("", fault.NotFound, "choir runs lists what there is.", &contract.FieldError{Field: "continues", Reason: "names no run of this computer"})
	case s.Report == nil:
		return nil, fault.New("", fault.Conflict, "Say it to the run itself, or wait until it has ended.", errors.New("the run to continue has not ended"))
	}
	return s, nil
}

// continued is what the Director is told of the run that this one continues: a record, quoted, of which
// nothing is granted to this run.
func (r *run) continued(ctx context.Context) (string, error) {
	id := r.story.Prompt.Continues
	if id == "" {
		return "", nil
	}
	s, err := r.dispatcher.earlier(ctx, id)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		// Its log was recovered from a copy that lacks the run or its end.
		return summary.Gone(id), nil
	}
	if err != nil {
		return "", fmt.Errorf("the run that it continues: %w", err)
	}
	was := summary.Past{Run: s}
	doc, err := r.dispatcher.options.Documents.Get(ctx, s.DocumentID())
	if err == nil {
		was.Document = doc.Path
	} else if !fault.Is(err, fault.NotFound) {
		return "", err
	}
	for _, k := range summary.KeptTrees(s) {
		_, err := r.dispatcher.options.Workspace.Start(ctx, k.Tree.Commit)
		if fault.Is(err, fault.NotFound) {
			continue // it was let go
		}
		if err != nil {
			return "", err
		}
		was.Kept = append(was.Kept, k)
	}
	return was.Text(), nil
}

// recentRuns is how many of the newest runs a Director is told of.
const recentRuns = 5

// recent is what the Director is told of the newest runs of its computer but the one that it continues.
func (r *run) recent(ctx context.Context) (string, error) {
	runs, err := r.dispatcher.options.Past.Recent(ctx, recentRuns+1)
	if err != nil {
		return "", fmt.Errorf("the newest runs: %w", err)
	}
	runs = slices.DeleteFunc(runs, func(p state.Run) bool { return p.ID == r.story.Prompt.Continues || p.ID == r.story.ID })
	return summary.Recently(runs[:min(len(runs), recentRuns)]), nil
}
