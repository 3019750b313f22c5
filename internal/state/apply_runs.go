package state

import (
	"context"

	"choir.dev/choiros/contract"
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
	run := RunOf(e)
	budget, err := js(p.Budget)
	if err != nil {
		return err
	}
	if err := do(ctx, w, `INSERT INTO runs (id, prompt, user, model, budget, status, created, updated, seq, last_seq) VALUES (?,?,?,?,?,?,?,?,?,?)`,
		run, p.Text, e.User, p.Model, budget, string(contract.RunQueued), stamp(e.Time), stamp(e.Time), int64(e.Sequence), int64(e.Sequence)); err != nil {
		return err
	}
	if err := do(ctx, w, `INSERT INTO conversations (id, run, started, seq) VALUES (?,?,?,?)`, run, run, stamp(e.Time), int64(e.Sequence)); err != nil {
		return err
	}
	return say(ctx, w, e, run, "prompt", p.Text)
}

// say adds a message to the run's conversation.
func say(ctx context.Context, w *writer, e contract.Event, run, kind, content string) error {
	return do(ctx, w, `INSERT INTO messages (seq, conversation, role, kind, content, time) VALUES (?,?,?,?,?,?)`,
		int64(e.Sequence), run, string(e.Role()), kind, content, stamp(e.Time))
}

// updateRun sets columns of the event's run.
func updateRun(ctx context.Context, w *writer, e contract.Event, set string, args ...any) error {
	args = append(args, stamp(e.Time), int64(e.Sequence), e.Run)
	return must(ctx, w, "no run has the event's run id", `UPDATE runs SET `+set+`, updated = ?, last_seq = ? WHERE id = ?`, args...)
}

func runStarted(ctx context.Context, w *writer, e contract.Event, p *contract.RunStarted) error {
	return updateRun(ctx, w, e, `document = ?, provider = ?, model = ?`, p.Document, p.Provider, p.Model)
}

func runPlanned(ctx context.Context, w *writer, e contract.Event, p *contract.RunPlanned) error {
	plan, err := list(p.Plan)
	if err != nil {
		return err
	}
	return updateRun(ctx, w, e, `objective = ?, plan = ?`, p.Objective, plan)
}

func runMoved(ctx context.Context, w *writer, e contract.Event, p *contract.RunMoved) error {
	// A report ends a run for good; a move that lost the race with it says nothing.
	return must(ctx, w, "no open run has the event's run id",
		`UPDATE runs SET status = ?, reason = ?, updated = ?, last_seq = ? WHERE id = ? AND ended = ''`,
		string(p.Status), p.Reason, stamp(e.Time), int64(e.Sequence), e.Run)
}

func runSteered(ctx context.Context, w *writer, e contract.Event, p *contract.RunSteered) error {
	if err := updateRun(ctx, w, e, `reason = reason`); err != nil {
		return err
	}
	return say(ctx, w, e, e.Run, "steer", p.Text)
}

func runCommanded(ctx context.Context, w *writer, e contract.Event, p *contract.RunCommanded) error {
	return updateRun(ctx, w, e, `command = ?`, string(p.Command))
}

func runReported(ctx context.Context, w *writer, e contract.Event, p *contract.RunReported) error {
	usage, err := js(p.Usage)
	if err != nil {
		return err
	}
	if err := updateRun(ctx, w, e, `status = ?, summary = ?, document = iif(? = '', document, ?), checkpoint = ?, verified = ?, usage = ?, error = ?, ended = ?`,
		string(p.Status), p.Summary, p.Document, p.Document, p.Checkpoint, string(p.Verified), usage, p.Error, stamp(e.Time)); err != nil {
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
		p.Answer, truth(p.Default), int64(e.Sequence), e.Run, p.Question); err != nil {
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
	return do(ctx, w, `UPDATE tasks SET status = 'running', attempt = ?1, base = iif(?2 = '', base, ?2), started = iif(started = '', ?3, started)
		WHERE id = ?4 AND attempt <= ?1`, p.Attempt, p.Base, stamp(e.Time), e.Task)
}

// attemptMoved keeps where an attempt stands, until it has its result.
func attemptMoved(ctx context.Context, w *writer, e contract.Event, p *contract.AttemptMoved) error {
	return must(ctx, w, "the attempt has finished", `INSERT INTO attempts (task, attempt, base, status, started_seq)
		VALUES (?,?,?,?,?)
		ON CONFLICT (task, attempt) DO UPDATE SET status = excluded.status
		WHERE finished_seq = 0`,
		e.Task, p.Attempt, p.Base, string(p.State), int64(e.Sequence))
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
	if err := do(ctx, w, `UPDATE tasks SET status = ?, attempt = ?, base = iif(? = '', base, ?), head = ?, summary = ?, verification = ?, result = ?, finished = ?
		WHERE id = ? AND attempt <= ?`,
		string(r.Status), r.Attempt, r.Base, r.Base, r.Head, r.Summary, string(r.Verification.Status), result, stamp(e.Time), r.Task, r.Attempt); err != nil {
		return err
	}
	for i, c := range r.Citations {
		if err := do(ctx, w, `INSERT INTO citations (task, attempt, ordinal, source, excerpt, seq) VALUES (?,?,?,?,?,?)`,
			r.Task, r.Attempt, i+1, c.Source, c.Excerpt, int64(e.Sequence)); err != nil {
			return err
		}
	}
	return nil
}

func toolCalled(ctx context.Context, w *writer, e contract.Event, p *contract.ToolCalled) error {
	return do(ctx, w, `INSERT INTO tool_calls (task, attempt, call, run, name, args, read_only, status, called_seq) VALUES (?,?,?,?,?,?,?,'called',?)`,
		e.Task, p.Attempt, p.Call, e.Run, p.Name, string(p.Args), truth(p.ReadOnly), int64(e.Sequence))
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
