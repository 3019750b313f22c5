package past

import (
	"context"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Runs answers rpc.RunList.
func (c *Past) Runs(ctx context.Context, before uint64, limit int) ([]view.Run, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, err
	}
	return c.listRuns(ctx, state.RunFilter{Before: before, Limit: limit})
}

// listRuns lists the runs that match a filter, as of the events that are projected.
func (c *Past) listRuns(ctx context.Context, f state.RunFilter) ([]view.Run, error) {
	rows, err := c.state.Runs(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]view.Run, 0, len(rows))
	for _, r := range rows {
		run, err := c.runOf(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, run)
	}
	return out, nil
}

var openRuns = state.RunFilter{Open: true, Limit: 50}

// AnyOpenRun reports whether a run has not ended, as of the events that are projected.
func (c *Past) AnyOpenRun(ctx context.Context) (bool, error) {
	rows, err := c.state.Runs(ctx, state.RunFilter{Open: true, Limit: 1})
	return len(rows) > 0, err
}

// OpenRuns lists the runs that have not ended, with their questions.
func (c *Past) OpenRuns(ctx context.Context) ([]view.Run, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, err
	}
	runs, err := c.listRuns(ctx, openRuns)
	if err != nil {
		return nil, err
	}
	of := func(id string) int { return slices.IndexFunc(runs, func(r view.Run) bool { return r.ID == id }) }
	questions, err := c.state.Questions(ctx, "", true)
	if err != nil {
		return nil, err
	}
	for _, q := range questions {
		if i := of(q.Run); i >= 0 {
			runs[i].Questions = append(runs[i].Questions, questionOf(q))
		}
	}
	asked, err := c.approvals(ctx, state.ApprovalFilter{Open: true})
	if err != nil {
		return nil, err
	}
	for _, a := range asked {
		if i := of(a.Run); i >= 0 {
			runs[i].Approvals = append(runs[i].Approvals, a)
		}
	}
	looks, err := c.reviews(ctx, state.ReviewFilter{Open: true})
	if err != nil {
		return nil, err
	}
	for _, l := range looks {
		if i := of(l.Run); i >= 0 {
			runs[i].Reviews = append(runs[i].Reviews, l)
		}
	}
	return runs, nil
}

// Run implements control.Computer.
func (c *Past) Run(ctx context.Context, id string) (view.Run, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Run{}, err
	}
	r, err := c.state.Run(ctx, id)
	if err != nil {
		return view.Run{}, err
	}
	out, err := c.runOf(ctx, r)
	if err != nil {
		return view.Run{}, err
	}
	for _, t := range r.Tasks {
		detail, err := c.state.Task(ctx, t.ID)
		if err != nil {
			return view.Run{}, err
		}
		out.Tasks = append(out.Tasks, view.Task{
			ID: t.ID, Kind: t.Kind, Goal: t.Goal, Status: t.Status, Attempt: t.Attempt,
			Verification: t.Verification, Summary: t.Summary, Result: detail.Result,
		})
	}
	questions, err := c.state.Questions(ctx, id, true)
	if err != nil {
		return view.Run{}, err
	}
	for _, q := range questions {
		out.Questions = append(out.Questions, questionOf(q))
	}
	if out.Reviews, err = c.reviews(ctx, state.ReviewFilter{Run: id, Open: true}); err != nil {
		return view.Run{}, err
	}
	out.Approvals, err = c.approvals(ctx, state.ApprovalFilter{Run: id, Open: true})
	return out, err
}

// questionOf converts a question to the form that people see.
func questionOf(q state.Question) contract.Question {
	return contract.Question{ID: q.ID, Text: q.Text, Choices: q.Choices, Default: q.Default, Deadline: q.Deadline}
}

func (c *Past) runOf(ctx context.Context, r state.Run) (view.Run, error) {
	paused, err := c.paused(ctx, r)
	if err != nil {
		return view.Run{}, err
	}
	var waits []view.ModelWait
	for _, w := range r.Waits {
		waits = append(waits, view.ModelWait{Task: w.Task, Provider: w.Provider, Model: w.Model, Code: w.Code, Message: w.Message, Since: w.Since, Next: w.Next, Until: w.Until})
	}
	return view.Run{
		ID: r.ID, Prompt: r.Prompt, Status: r.Status, Reason: r.Reason, Objective: r.Objective, Plan: r.Plan,
		Summary: r.Summary, Error: r.Error, Verified: r.Verified, Document: r.Document, Checkpoint: r.Checkpoint,
		Provider: r.Provider, Model: r.Model, Usage: r.Usage,
		Started: When(r.Created), Ended: r.Ended, Paused: paused, StoodMS: r.StoodMS, Waits: waits, Fallback: r.Fallback, Continues: r.Continues, Direct: r.Direct, Sequence: r.Seq,
	}, nil
}

// paused says who had a run pause, and when; it is nil for a run that is not paused. Who that was is read from the
// log's index, of a paused run alone.
func (c *Past) paused(ctx context.Context, r state.Run) (*view.Paused, error) {
	if r.Command != contract.CommandPause || r.Status.Ended() {
		return nil, nil
	}
	told, err := c.state.Events(ctx, state.EventFilter{Newest: true, Limit: 1, Run: r.ID, Types: []string{"run.commanded"}})
	if err != nil || len(told) == 0 {
		return &view.Paused{}, err
	}
	return &view.Paused{By: told[0].By().Name(), Since: told[0].Time}, nil
}

// Documents answers rpc.DocumentList.
func (c *Past) Documents(ctx context.Context, limit int) ([]view.Document, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	rows, err := c.state.Documents(ctx, limit+1)
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	out := make([]view.Document, len(rows))
	for i, r := range rows {
		out[i] = documentOf(r)
	}
	return out, more, err
}

// Document answers rpc.DocumentGet.
func (c *Past) Document(ctx context.Context, id string, revision int) (view.Document, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Document{}, err
	}
	var r state.Revision
	var err error
	if revision > 0 {
		r, err = c.state.Revision(ctx, id, revision)
	} else {
		r, err = c.state.Document(ctx, id)
	}
	if err != nil {
		return view.Document{}, err
	}
	return documentOf(r), nil
}

// Revisions answers rpc.RevisionList.
func (c *Past) Revisions(ctx context.Context, id string, before, limit int) ([]view.Document, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	rows, more, err := c.state.Texts(ctx, id, before, limit, view.MaxText)
	if err == nil && len(rows) == 0 {
		_, err = c.state.Document(ctx, id) // the document does not exist, or has no revision that old
	}
	out := make([]view.Document, len(rows))
	for i, r := range rows {
		out[i] = documentOf(r)
	}
	return out, more, err
}

func documentOf(r state.Revision) view.Document {
	return view.Document{ID: r.Document, Title: r.Title, Path: r.Path, Revision: r.Revision, Author: r.Author, Time: When(r.Time), Body: r.Body}
}

// Snapshot answers rpc.StateSnapshot. Events may be projected while the state is read, so
// it is read again until none was.
func (c *Past) Snapshot(ctx context.Context) (view.Snapshot, error) {
	const op, page = "past.Snapshot", 50
	for range 50 {
		if err := c.state.CaughtUp(ctx, c.log); err != nil {
			return view.Snapshot{}, err
		}
		s := view.Snapshot{Sequence: c.state.Last()}
		if err := c.fillSnapshot(ctx, &s, page); err != nil {
			return view.Snapshot{}, err
		}
		if c.state.Last() == s.Sequence {
			return s, nil
		}
	}
	return view.Snapshot{}, fault.New(op, fault.Unavailable, "Try again in a moment.", nil)
}

func (c *Past) fillSnapshot(ctx context.Context, s *view.Snapshot, page int) error {
	info, err := c.info(ctx)
	if err != nil {
		return err
	}
	s.Computer = info.Head()
	theme, err := c.state.Theme(ctx)
	switch {
	case err == nil:
		s.Theme = &theme.Theme
	case !fault.Is(err, fault.NotFound):
		return err
	}
	windows, err := c.state.Windows(ctx)
	if err != nil {
		return err
	}
	for _, w := range windows {
		s.Windows = append(s.Windows, view.Window{Window: w.ID, App: w.App, Title: w.Title, Frame: w.Frame, State: w.State, Z: w.Z, Props: w.Props})
	}
	runs, err := c.listRuns(ctx, state.RunFilter{Limit: page})
	if err != nil {
		return err
	}
	for _, r := range runs {
		s.Runs = append(s.Runs, r.Head())
	}
	checkpoints, _, err := c.listCheckpoints(ctx, 0, page)
	if err != nil {
		return err
	}
	for _, k := range checkpoints {
		s.Checkpoints = append(s.Checkpoints, view.ByName[view.Checkpoint]{Of: k})
	}
	documents, err := c.state.Documents(ctx, page)
	if err != nil {
		return err
	}
	for _, d := range documents {
		s.Documents = append(s.Documents, documentOf(d).Head())
	}
	return nil
}

// Checkpoints answers rpc.CheckpointList.
func (c *Past) Checkpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	return c.listCheckpoints(ctx, before, limit)
}

// listCheckpoints lists checkpoints, newest first, as of the events that are projected.
func (c *Past) listCheckpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error) {
	rows, err := c.state.Checkpoints(ctx, before, min(limit+1, state.MaxPage))
	if err != nil {
		return nil, false, err
	}
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	out := make([]view.Checkpoint, 0, len(rows))
	for _, k := range rows {
		out = append(out, checkpointOf(k))
	}
	return out, more, nil
}

// ShowCheckpoint answers rpc.CheckpointGet.
func (c *Past) ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Checkpoint{}, err
	}
	k, err := c.state.Checkpoint(ctx, id)
	if err != nil {
		return view.Checkpoint{}, err
	}
	return checkpointOf(k), nil
}

func checkpointOf(k state.Checkpoint) view.Checkpoint {
	out := view.Checkpoint{
		ID: k.Commit, Parent: k.Parent, Tree: k.Tree, Kind: k.Kind, Message: k.Message, Verified: k.Verified, Files: k.Files,
		Skipped: k.Skipped, Left: k.Left, Ignored: k.Ignored, Outside: k.Outside, Seq: k.Seq, Sequence: k.Sequence, Time: When(k.Time), Author: contract.CheckpointAuthor(k.Kind, k.Task, k.By.Kind), Run: k.Run, Task: k.Task,
	}
	if k.By.Kind.Client() {
		out.Actor, out.User = k.By.Name(), k.By.Account()
	}
	return out
}

// When parses a time of the state's; it is zero if there is none.
func When(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// SpentOn returns what a run's model calls have consumed so far.
func (c *Past) SpentOn(ctx context.Context, run string) (contract.Usage, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return contract.Usage{}, err
	}
	sums, err := c.state.Usage(ctx, state.UsageFilter{Run: run})
	if err != nil {
		return contract.Usage{}, err
	}
	var out contract.Usage
	for _, u := range sums {
		out.TokensIn += u.TokensIn
		out.TokensOut += u.TokensOut
		out.CostUSD += u.CostUSD
	}
	return out, nil
}

// SpentToday returns what the day's model calls have cost so far.
func (c *Past) SpentToday(ctx context.Context) (usd float64, err error) {
	sums, err := c.state.Usage(ctx, state.UsageFilter{Day: time.Now().UTC().Format(time.DateOnly)})
	for _, u := range sums {
		usd += u.CostUSD
	}
	return usd, err
}

// Remotes lists the git remotes that choir add recorded on the host.
func (c *Past) Remotes(ctx context.Context) ([]string, error) {
	repositories, err := c.state.Repositories(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range repositories {
		if r.Remote != "" {
			out = append(out, r.Remote)
		}
	}
	return out, nil
}
