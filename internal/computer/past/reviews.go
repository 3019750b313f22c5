package past

import (
	"context"

	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Reviews answers rpc.ReviewList.
func (c *Past) Reviews(ctx context.Context, all bool, before uint64, limit int) ([]view.Review, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	list, err := c.reviews(ctx, state.ReviewFilter{Open: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	more := len(list) > limit
	return list[:min(len(list), limit)], more, nil
}

// reviews lists the reviews that match a filter, as of the events that are projected.
func (c *Past) reviews(ctx context.Context, f state.ReviewFilter) ([]view.Review, error) {
	rows, err := c.state.Reviews(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]view.Review, 0, len(rows))
	for _, r := range rows {
		out = append(out, reviewOf(r))
	}
	return out, nil
}

func reviewOf(r state.Review) view.Review {
	return view.Review{Run: r.Run, Prompt: r.Prompt, Task: r.Task, Goal: r.Goal, Kind: r.Kind, Attempt: r.Attempt, Review: r.Review, Base: r.Base, Work: r.Work, Paths: r.Paths, Reason: r.Reason,
		Asked: When(r.Asked), Decision: r.Decision, By: r.AnsweredBy, Answered: When(r.Answered), Only: r.Chosen, Comments: r.Comments, Sequence: r.AskedSeq}
}
