package state

import (
	"context"
	"database/sql"
	"errors"

	"choir.dev/choiros/contract"
)

func reviewRequested(ctx context.Context, w *writer, e contract.Event, p *contract.ReviewRequested) error {
	err := must(ctx, w, "no such attempt is open", `UPDATE attempts SET status = ? WHERE task = ? AND attempt = ? AND finished_seq = 0`, string(contract.AttemptReviewing), e.Task, p.Attempt)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO reviews (task, attempt, review, run, base, work, paths, reason, asked, asked_seq) VALUES (?,?,?,?,?,?,?,?,?,?)`,
		e.Task, p.Attempt, p.Review, e.Run, p.Base, p.Work, p.Paths, p.Reason, stamp(e.Time), int64(e.Sequence))
}

func reviewAnswered(ctx context.Context, w *writer, e contract.Event, p *contract.ReviewAnswered) error {
	chosen, err := list(p.Only)
	if err != nil {
		return err
	}
	comments, err := list(p.Comments)
	if err != nil {
		return err
	}
	err = must(ctx, w, "no such review is open in the run", `UPDATE reviews SET decision = ?, answered_by = ?, chosen = ?, comments = ?, answered = ?, answered_seq = ?
		WHERE task = ? AND attempt = ? AND review = ? AND run = ? AND work = ? AND answered_seq = 0`,
		string(p.Decision), string(e.By().Name()), chosen, comments, stamp(e.Time), int64(e.Sequence), e.Task, p.Attempt, p.Review, e.Run, p.Work)
	if err != nil {
		return err
	}
	return must(ctx, w, "no such attempt is open", `UPDATE attempts SET status = ? WHERE task = ? AND attempt = ? AND finished_seq = 0`, string(contract.AttemptReviewed), e.Task, p.Attempt)
}

// closeReviews ends the review of an attempt that ended, or goes to its end, without an answer.
func closeReviews(ctx context.Context, w *writer, e contract.Event, task string, attempt int) error {
	return do(ctx, w, `UPDATE reviews SET answered = ?, answered_seq = ? WHERE task = ? AND attempt = ? AND answered_seq = 0`, stamp(e.Time), int64(e.Sequence), task, attempt)
}

// Review is work of a task that waits until a person has looked at it, or that they looked at. It is open
// while AnsweredSeq is 0; one that ended without an answer has no Decision.
type Review struct {
	Run         string                   `json:"run"`
	Prompt      string                   `json:"prompt"` // of the run
	Task        string                   `json:"task"`
	Goal        string                   `json:"goal"`
	Kind        contract.TaskKind        `json:"kind"`
	Attempt     int                      `json:"attempt"`
	Review      int                      `json:"review"`
	Base        string                   `json:"base"`
	Work        string                   `json:"work"`
	Paths       int                      `json:"paths"`
	Reason      string                   `json:"reason"`
	Asked       string                   `json:"asked"`
	AskedSeq    uint64                   `json:"asked_seq"`
	Decision    contract.ReviewDecision  `json:"decision"`
	AnsweredBy  string                   `json:"answered_by"`
	Chosen      []contract.Choice        `json:"chosen"`
	Comments    []contract.ReviewComment `json:"comments"`
	Answered    string                   `json:"answered"`
	AnsweredSeq uint64                   `json:"answered_seq"`
}

// ReviewFilter selects reviews; Before, when not 0, those asked before that sequence. An empty run
// selects those of every run.
type ReviewFilter struct {
	Run    string
	Open   bool // only those
	Before uint64
	Limit  int // 0: 100; at most MaxPage
}

// Reviews lists reviews, newest first.
func (s *Store) Reviews(ctx context.Context, f ReviewFilter) ([]Review, error) {
	query, args := `SELECT v.run, r.prompt, v.task, t.goal, t.kind, v.attempt, v.review, v.base, v.work, v.paths, v.reason, v.asked, v.asked_seq, v.decision, v.answered_by, v.chosen, v.comments,
		v.answered, v.answered_seq FROM reviews v JOIN runs r ON r.id = v.run JOIN tasks t ON t.id = v.task WHERE v.asked_seq < ?`, []any{below(f.Before)}
	if f.Run != "" {
		query, args = query+" AND v.run = ?", append(args, f.Run)
	}
	if f.Open {
		query += " AND v.answered_seq = 0"
	}
	return all(ctx, s, "state.Reviews", func(r *sql.Rows) (v Review, err error) {
		var chosen, comments string
		err = r.Scan(&v.Run, &v.Prompt, &v.Task, &v.Goal, &v.Kind, &v.Attempt, &v.Review, &v.Base, &v.Work, &v.Paths, &v.Reason, &v.Asked, &v.AskedSeq, &v.Decision, &v.AnsweredBy, &chosen, &comments,
			&v.Answered, &v.AnsweredSeq)
		return v, errors.Join(err, decode(chosen, &v.Chosen), decode(comments, &v.Comments))
	}, query+" ORDER BY v.asked_seq DESC LIMIT ?", append(args, page(f.Limit))...)
}
