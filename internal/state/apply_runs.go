package state

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/run"
)

func computerCreated(ctx context.Context, w *writer, e contract.Event, p *contract.ComputerCreated) error {
	return do(ctx, w, `INSERT INTO computer (id, name, driver, epoch, created) VALUES (?,?,?,?,?)`,
		string(e.Computer), p.Name, p.Driver, int64(e.Epoch), stamp(e.Time))
}

func computerRenamed(ctx context.Context, w *writer, e contract.Event, p *contract.ComputerRenamed) error {
	return must(ctx, w, "the computer was not created", `UPDATE computer SET name = ? WHERE id = ?`, p.Name, string(e.Computer))
}

func computerWoken(ctx context.Context, w *writer, e contract.Event, p *contract.ComputerWoken) error {
	notes, err := list(p.Notes)
	if err != nil {
		return err
	}
	return must(ctx, w, "the computer was not created",
		`UPDATE computer SET version = ?, driver = ?, isolation = ?, notes = ?, epoch = ?, woken = ? WHERE id = ?`,
		p.Version, p.Driver, p.Isolation, notes, int64(e.Epoch), stamp(e.Time), string(e.Computer))
}

// RunOf is the run an event belongs to. A prompt's run derives from its id.
func RunOf(e contract.Event) string {
	if e.Run == "" && e.Type == "prompt.submitted" {
		return contract.DeriveID(e.ID, "run")
	}
	return e.Run
}

func promptSubmitted(ctx context.Context, w *writer, e contract.Event, p *contract.PromptSubmitted) error {
	id := RunOf(e)
	budget, err := js(p.Budget)
	if err != nil {
		return err
	}
	h := run.NewHead(*p)
	if err := do(ctx, w, `INSERT INTO runs (id, prompt, user, model, budget, continues, status, created, updated, seq, last_seq) VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
		id, p.Text, e.User, h.Model, budget, p.Continues, string(h.Status), stamp(e.Time), stamp(e.Time), int64(e.Sequence), int64(e.Sequence)); err != nil {
		return err
	}
	if err := do(ctx, w, `INSERT INTO conversations (id, run, started, seq) VALUES (?,?,?,?)`, id, id, stamp(e.Time), int64(e.Sequence)); err != nil {
		return err
	}
	return say(ctx, w, e, id, "prompt", p.Text)
}

// say adds a message to the run's conversation.
func say(ctx context.Context, w *writer, e contract.Event, id, kind, content string) error {
	return do(ctx, w, `INSERT INTO messages (seq, conversation, role, kind, content, time) VALUES (?,?,?,?,?,?)`,
		int64(e.Sequence), id, string(e.Kind()), kind, content, stamp(e.Time))
}

// updateRun sets columns of the event's run.
func updateRun(ctx context.Context, w *writer, e contract.Event, set string, args ...any) error {
	args = append(args, stamp(e.Time), int64(e.Sequence), e.Run)
	return must(ctx, w, "no run has the event's run id", `UPDATE runs SET `+set+`, updated = ?, last_seq = ? WHERE id = ?`, args...)
}

// foldRun applies an event to its run's row, with the reducer that the dispatcher uses.
func foldRun(ctx context.Context, w *writer, e contract.Event, p contract.Payload) (run.Head, error) {
	var h run.Head
	var plan, usage, ended, waits string
	st, err := w.prepare(ctx, `SELECT status, reason, command, document, provider, model, objective, plan, summary, error, verified, checkpoint, usage, ended, stood_ms, waits, fallback, direct FROM runs WHERE id = ?`)
	if err != nil {
		return h, err
	}
	err = st.QueryRowContext(ctx, e.Run).Scan(&h.Status, &h.Reason, &h.Command, &h.Document, &h.Provider, &h.Model, &h.Objective, &plan,
		&h.Summary, &h.Error, &h.Verified, &h.Checkpoint, &usage, &ended, &h.StoodMS, &waits, &h.Fallback, &h.Direct)
	if errors.Is(err, sql.ErrNoRows) {
		return h, poisoned("no run has the event's run id")
	}
	if err == nil {
		h.Ended, err = unstamp(ended)
	}
	if err := errors.Join(err, decode(plan, &h.Plan), decode(usage, &h.Usage), decode(waits, &h.Waits)); err != nil {
		return h, err
	}
	if !h.Apply(e, p) {
		return h, poisoned("no open run has the event's run id")
	}
	if plan, err = list(h.Plan); err != nil {
		return h, err
	}
	if usage, err = js(h.Usage); err != nil {
		return h, err
	}
	if waits, err = list(h.Waits); err != nil {
		return h, err
	}
	ended = ""
	if !h.Ended.IsZero() {
		ended = stamp(h.Ended)
	}
	return h, updateRun(ctx, w, e, `status = ?, reason = ?, command = ?, document = ?, provider = ?, model = ?, objective = ?, plan = ?,
		summary = ?, error = ?, verified = ?, checkpoint = ?, usage = ?, ended = ?, stood_ms = ?, waits = ?, fallback = ?, direct = ?`,
		string(h.Status), h.Reason, string(h.Command), h.Document, h.Provider, h.Model, h.Objective, plan,
		h.Summary, h.Error, string(h.Verified), h.Checkpoint, usage, ended, h.StoodMS, waits, h.Fallback, h.Direct)
}

// unstamp reads a time that stamp wrote; "" is none.
func unstamp(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339Nano, s)
}

func runStarted(ctx context.Context, w *writer, e contract.Event, p *contract.RunStarted) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func runPlanned(ctx context.Context, w *writer, e contract.Event, p *contract.RunPlanned) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func runMoved(ctx context.Context, w *writer, e contract.Event, p *contract.RunMoved) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func runStood(ctx context.Context, w *writer, e contract.Event, p *contract.RunStood) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func modelWaiting(ctx context.Context, w *writer, e contract.Event, p *contract.ModelWaiting) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func modelResumed(ctx context.Context, w *writer, e contract.Event, p *contract.ModelResumed) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func modelSwitched(ctx context.Context, w *writer, e contract.Event, p *contract.ModelSwitched) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func runSteered(ctx context.Context, w *writer, e contract.Event, p *contract.RunSteered) error {
	if err := updateRun(ctx, w, e, `reason = reason`); err != nil {
		return err
	}
	return say(ctx, w, e, e.Run, "steer", p.Text)
}

func runCommanded(ctx context.Context, w *writer, e contract.Event, p *contract.RunCommanded) error {
	_, err := foldRun(ctx, w, e, p)
	return err
}

func runReported(ctx context.Context, w *writer, e contract.Event, p *contract.RunReported) error {
	if _, err := foldRun(ctx, w, e, p); err != nil {
		return err
	}
	return say(ctx, w, e, e.Run, "report", p.Summary)
}

func questionAsked(ctx context.Context, w *writer, e contract.Event, p *contract.QuestionAsked) error {
	q := p.Question
	choices, err := list(q.Choices)
	if err != nil {
		return err
	}
	if err := do(ctx, w, `INSERT INTO questions (run, id, text, choices, "default", deadline, asked_seq) VALUES (?,?,?,?,?,?,?)`,
		e.Run, q.ID, q.Text, choices, q.Default, q.Deadline, int64(e.Sequence)); err != nil {
		return err
	}
	return say(ctx, w, e, e.Run, "question", q.Text)
}

func questionAnswered(ctx context.Context, w *writer, e contract.Event, p *contract.QuestionAnswered) error {
	if err := must(ctx, w, "no such question is open in the run",
		`UPDATE questions SET answer = ?, by_default = ?, answered_seq = ? WHERE run = ? AND id = ? AND answered_seq = 0`,
		p.Answer, boolInt(p.Default), int64(e.Sequence), e.Run, p.Question); err != nil {
		return err
	}
	return say(ctx, w, e, e.Run, "answer", p.Answer)
}

func taskRequested(ctx context.Context, w *writer, e contract.Event, p *contract.TaskRequested) error {
	t := p.Task
	if e.Run != t.Run {
		return poisoned("the task is of run %s but the event of run %q", t.Run, e.Run)
	}
	task, err := js(t)
	if err != nil {
		return err
	}
	return must(ctx, w, "the task is another run's", `INSERT INTO tasks (id, run, kind, goal, status, attempt, task, base, requested, seq)
		VALUES (?,?,?,?,'requested',?,?,?,?,?)
		ON CONFLICT (id) DO UPDATE SET status = 'requested', attempt = excluded.attempt, task = excluded.task
		WHERE run = excluded.run AND attempt < excluded.attempt`,
		t.ID, t.Run, string(t.Kind), t.Goal, t.Attempt, task, t.Base, stamp(e.Time), int64(e.Sequence))
}

func taskStarted(ctx context.Context, w *writer, e contract.Event, p *contract.TaskStarted) error {
	// The same attempt may start again: an agent task resumes in a new box
	// after a crash. An attempt that has its result may not.
	if err := must(ctx, w, "the attempt has finished", `INSERT INTO attempts (task, attempt, box, fence, base, status, started_seq)
		VALUES (?,?,?,?,?,?,?)
		ON CONFLICT (task, attempt) DO UPDATE SET box = excluded.box, fence = excluded.fence, base = excluded.base, status = excluded.status
		WHERE finished_seq = 0`,
		e.Task, p.Attempt, p.Box, p.Fence, p.Base, string(contract.AttemptWorking), int64(e.Sequence)); err != nil {
		return err
	}
	_, err := foldTask(ctx, w, e, e.Task, p)
	return err
}

// foldTask applies an event to its task's row, as foldRun does for runs, and says whether
// it changed anything.
func foldTask(ctx context.Context, w *writer, e contract.Event, id string, p contract.Payload) (bool, error) {
	var h run.TaskHead
	var started, finished string
	st, err := w.prepare(ctx, `SELECT status, attempt, base, head, summary, verification, started, finished FROM tasks WHERE id = ?`)
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(ctx, id).Scan(&h.Status, &h.Attempt, &h.Base, &h.Head, &h.Summary, &h.Verification, &started, &finished)
	if errors.Is(err, sql.ErrNoRows) {
		return false, poisoned("the task was not requested")
	}
	if err == nil {
		h.Started, err = unstamp(started)
	}
	if err == nil {
		h.Finished, err = unstamp(finished)
	}
	if err != nil || !h.Apply(e, p) {
		return false, err
	}
	stamped := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return stamp(t)
	}
	return true, do(ctx, w, `UPDATE tasks SET status = ?, attempt = ?, base = ?, head = ?, summary = ?, verification = ?, started = ?, finished = ? WHERE id = ?`,
		h.Status, h.Attempt, h.Base, h.Head, h.Summary, string(h.Verification), stamped(h.Started), stamped(h.Finished), id)
}

// attemptMoved stores an attempt's state, until the attempt has its result.
func attemptMoved(ctx context.Context, w *writer, e contract.Event, p *contract.AttemptMoved) error {
	if p.State == contract.AttemptTakingBack {
		if err := closeReviews(ctx, w, e, e.Task, p.Attempt); err != nil {
			return err
		}
	}
	return must(ctx, w, "the attempt has finished", `INSERT INTO attempts (task, attempt, base, status, started_seq)
		VALUES (?,?,?,?,?)
		ON CONFLICT (task, attempt) DO UPDATE SET status = excluded.status
		WHERE finished_seq = 0`,
		e.Task, p.Attempt, p.Base, string(p.State), int64(e.Sequence))
}

// repairRequested stores that an attempt is sent back to its loop.
func repairRequested(ctx context.Context, w *writer, e contract.Event, p *contract.RepairRequested) error {
	return must(ctx, w, "no such attempt is open", `UPDATE attempts SET status = ? WHERE task = ? AND attempt = ? AND finished_seq = 0`,
		string(contract.AttemptRepairing), e.Task, p.Attempt)
}

func taskFinished(ctx context.Context, w *writer, e contract.Event, p *contract.TaskFinished) error {
	r := p.Result
	result, err := js(r)
	if err != nil {
		return err
	}
	if err := must(ctx, w, "the attempt has a result already", `INSERT INTO attempts (task, attempt, base, status, result, finished_seq)
		VALUES (?,?,?,?,?,?)
		ON CONFLICT (task, attempt) DO UPDATE SET status = excluded.status, result = excluded.result, finished_seq = excluded.finished_seq
		WHERE finished_seq = 0`,
		r.Task, r.Attempt, r.Base, string(r.Status), result, int64(e.Sequence)); err != nil {
		return err
	}
	if err := closeReviews(ctx, w, e, r.Task, r.Attempt); err != nil {
		return err
	}
	newest, err := foldTask(ctx, w, e, r.Task, p)
	if err == nil && newest {
		err = do(ctx, w, `UPDATE tasks SET result = ? WHERE id = ?`, result, r.Task)
	}
	if err != nil {
		return err
	}
	if k := r.Kept; k != nil {
		// A tree that an attempt wrote to the same byte as another's is kept once.
		if err := do(ctx, w, `INSERT INTO kept_trees (commit_id, base, paths, run, task, attempt, seq) VALUES (?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
			k.Commit, k.Base, k.Paths, e.Run, r.Task, r.Attempt, int64(e.Sequence)); err != nil {
			return err
		}
	}
	return nil
}

func toolCalled(ctx context.Context, w *writer, e contract.Event, p *contract.ToolCalled) error {
	return do(ctx, w, `INSERT INTO tool_calls (task, attempt, call, run, name, args, read_only, status, called_seq) VALUES (?,?,?,?,?,?,?,'called',?)`,
		e.Task, p.Attempt, p.Call, e.Run, p.Name, string(p.Args), boolInt(p.ReadOnly), int64(e.Sequence))
}

func toolReturned(ctx context.Context, w *writer, e contract.Event, p *contract.ToolReturned) error {
	status := "error"
	if p.OK {
		status = "ok"
	}
	return must(ctx, w, "no such call is open in the task's attempt",
		`UPDATE tool_calls SET status = ?, output = ?, output_ref = ?, duration_ms = ?, returned_seq = ?
		WHERE task = ? AND attempt = ? AND call = ? AND returned_seq = 0`,
		status, p.Output, string(p.OutputRef), p.DurationMS, int64(e.Sequence), e.Task, p.Attempt, p.Call)
}

func verificationFinished(ctx context.Context, w *writer, e contract.Event, p *contract.VerificationFinished) error {
	v := p.Verification
	checks, err := list(v.Checks)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO verifications (seq, run, task, attempt, profile, status, tree, reason, checks, time) VALUES (?,?,?,?,?,?,?,?,?,?)`,
		int64(e.Sequence), e.Run, e.Task, p.Attempt, string(v.Profile), string(v.Status), v.Tree, v.Reason, checks, stamp(e.Time))
}

func commandStarted(ctx context.Context, w *writer, e contract.Event, p *contract.CommandStarted) error {
	argv, err := list(p.Argv)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO commands (id, argv, cwd, user, started_seq) VALUES (?,?,?,?,?)`, p.Command, argv, p.Cwd, e.User, int64(e.Sequence))
}

func commandFinished(ctx context.Context, w *writer, e contract.Event, p *contract.CommandFinished) error {
	return must(ctx, w, "no such command runs", `UPDATE commands SET exit_code = ?, duration_ms = ?, reason = ?, finished_seq = ? WHERE id = ? AND finished_seq = 0`,
		p.ExitCode, p.DurationMS, p.Reason, int64(e.Sequence), p.Command)
}
