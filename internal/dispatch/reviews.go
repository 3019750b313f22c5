package dispatch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"choir.dev/choiros/contract"
	machine "choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/view"
)

// underReview calls do with the run and with what of one of its tasks waits, or was last shown, to be looked at.
func (d *Dispatcher) underReview(ctx context.Context, runID, id string, do func(*run, view.Review) error) error {
	if _, err := d.caughtUp(ctx); err != nil { // its user may have been told a moment ago, before the run's story had it
		return err
	}
	err := d.with(ctx, runID, func(r *run) error {
		var out view.Review
		found := false
		r.Story(func(s *story.Run) {
			if t := s.Task(id); t != nil && len(t.Reviews) > 0 {
				out, found = summary.ReviewOf(s, t, t.Reviews[len(t.Reviews)-1]), true
			}
		})
		if !found {
			return fault.New("", fault.NotFound, "", fmt.Errorf("nothing of task %q was to be looked at", summary.OneLine(id, 60)))
		}
		return do(r, out)
	})
	if errors.Is(err, errNoRun) {
		return fault.New("", fault.NotFound, "Only work of a run under way can be looked at before it is published.", err)
	}
	return err
}

// Review shows what a task made, hunk by hunk, that waits until its user has looked at it, or did.
func (d *Dispatcher) Review(ctx context.Context, runID, id string) (view.Review, error) {
	const op = "dispatch.Review"
	var out view.Review
	err := d.underReview(ctx, runID, id, func(_ *run, v view.Review) (err error) {
		out = v
		out.Files, out.More, err = d.options.Workspace.Hunks(ctx, out.Base, out.Work)
		return err
	})
	return out, fault.Wrap(op, err)
}

// Looked answers a review as the run's user. The error is fault.Conflict if the work is not any more what
// they were shown, or somebody has answered.
func (d *Dispatcher) Looked(ctx context.Context, by contract.Actor, runID, id string, p contract.ReviewAnswered) (sequence uint64, err error) {
	const op = "dispatch.Looked"
	if err := p.Validate(); err != nil {
		return 0, fault.New(op, fault.Invalid, "", err)
	}
	err = d.underReview(ctx, runID, id, func(r *run, _ view.Review) (err error) {
		sequence, err = d.looked(ctx, r, by, id, p)
		return err
	})
	return sequence, fault.Wrap(op, err)
}

func (d *Dispatcher) looked(ctx context.Context, r *run, by contract.Actor, id string, p contract.ReviewAnswered) (uint64, error) {
	var now machine.Attempt
	var kind contract.TaskKind
	r.Story(func(s *story.Run) { now, kind = s.Task(id).Now, s.Task(id).Request.Kind })
	if err := d.followed(ctx, r.story.ID, id, kind, now, p); err != nil {
		return 0, err
	}
	if r.Context().Err() != nil {
		return 0, fault.New("", fault.Conflict, "", errors.New("the run ends"))
	}
	// Whoever answers second, or after the attempt went on, has the condition against them.
	es, err := r.Append(ctx, contract.Draft{Actor: by, Type: "review.answered", Subject: machine.Subject(id, now.Number), Task: id, Expect: &contract.Expect{Last: now.Last}, Data: &p})
	if err != nil {
		return 0, err
	}
	return es[0].Sequence, nil
}

// onlyLookedAt reports whether the run does nothing until its user has looked at what it made: then there
// is no deadline that it has to be awake for.
func (r *run) onlyLookedAt() bool {
	if !r.place.Rests() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return onlyLooked(r.story)
}

func onlyLooked(s *story.Run) bool {
	reviewing := slices.ContainsFunc(s.Tasks, func(t *story.Task) bool { return t.Now.State == contract.AttemptReviewing })
	return reviewing && !openQuestion(s) && s.OpenApprovals() == 0
}

// followed checks that a person's answer is one to the review that waits for it in a task, and that it
// can be followed. The error is fault.Conflict if another one waits, or none any more.
func (d *Dispatcher) followed(ctx context.Context, run, id string, kind contract.TaskKind, now machine.Attempt, p contract.ReviewAnswered) error {
	switch {
	case now.State != contract.AttemptReviewing:
		return fault.New("", fault.Conflict, "It was answered already, or the task has ended: look at the run.", errors.New("nothing of this task waits to be looked at"))
	case now.Number != p.Attempt || now.Review != p.Review || now.Work != p.Work:
		return fault.New("", fault.Conflict, "Look again at what it changes.", errors.New("the answer is for another state of the work than the one that waits"))
	case p.Decision == contract.ReviewRevise && kind == contract.KindExec:
		return fault.New("", fault.Invalid, "Discard it and say why; the Director is told.", errors.New("a task of fixed steps has no loop that comments could go back to"))
	}
	if err := d.about(ctx, now, p.Comments); err != nil {
		return err
	}
	if len(p.Only) > 0 {
		return d.options.Workspace.Choose(ctx, ports.TaskRef{Run: run, Task: id, Attempt: now.Number}, now.Base, now.Work, p.Only)
	}
	return nil
}

// maxCommented bounds the bytes that are read of a file to see whether it has a line.
const maxCommented = 64 << 20

// about checks that comments are about what the work changes, and about lines that are there. The error is
// fault.Conflict if one is not, as for a choice.
func (d *Dispatcher) about(ctx context.Context, now machine.Attempt, comments []contract.ReviewComment) error {
	if !slices.ContainsFunc(comments, func(c contract.ReviewComment) bool { return c.Path != "" }) {
		return nil
	}
	files, more, err := d.options.Workspace.Hunks(ctx, now.Base, now.Work)
	if err != nil {
		return err
	}
	for _, c := range comments {
		i := slices.IndexFunc(files, func(f view.ReviewFile) bool { return f.Path == c.Path })
		switch {
		case c.Path == "" || i < 0 && more > 0: // it may be one of those that are not listed
		case i < 0:
			return fault.New("", fault.Conflict, "Look again at what it changes.", fmt.Errorf("a comment is about %q, which the work does not change", summary.OneLine(c.Path, 200)))
		case c.Line > 0 && files[i].Plain == "" && files[i].Op != contract.ChangeDeleted:
			if err := d.hasLine(ctx, now.Work, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasLine checks that a file of the work has the line that a comment is about.
func (d *Dispatcher) hasLine(ctx context.Context, work string, c contract.ReviewComment) error {
	f, err := d.options.Workspace.Artifact(ctx, work, c.Path)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written
	lines, text := 0, bufio.NewReader(io.LimitReader(f, maxCommented))
	for lines < c.Line {
		part, err := text.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(part) > 0 {
			lines++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if lines < c.Line {
		return fault.New("", fault.Conflict, "Look again at what it changes.", fmt.Errorf("a comment is about line %d of %q, which has %d", c.Line, summary.OneLine(c.Path, 200), lines))
	}
	return nil
}
