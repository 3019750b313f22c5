package dispatch

import (
	"context"
	"errors"
	"reflect"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
)

// Word is that a person does something to a run. If ID is set, which must be a UUIDv7, it is the event's: who sends the same
// once more, since the answer was lost, gets that event's sequence, and nothing is done twice.
type Word struct {
	ID  string
	By  contract.Actor
	Run string
}

// Steer sends a run a message from its user, which its Director reads before its next turn.
func (d *Dispatcher) Steer(ctx context.Context, by contract.Actor, runID, text string) (uint64, error) {
	return d.Do(ctx, Word{By: by, Run: runID}, &contract.RunSteered{Text: text})
}

// Command pauses, resumes or cancels a run.
func (d *Dispatcher) Command(ctx context.Context, by contract.Actor, runID string, c contract.RunCommand) (uint64, error) {
	return d.Do(ctx, Word{By: by, Run: runID}, &contract.RunCommanded{Command: c})
}

// Switch has a run go on with another model, also the calls that wait for the one before.
func (d *Dispatcher) Switch(ctx context.Context, by contract.Actor, runID, model string) (uint64, error) {
	return d.Do(ctx, Word{By: by, Run: runID}, &contract.ModelSwitched{Model: model})
}

// Answer answers a question of a run. The error is fault.Conflict if it is answered already.
func (d *Dispatcher) Answer(ctx context.Context, by contract.Actor, runID, questionID, answer string) (uint64, error) {
	return d.Do(ctx, Word{By: by, Run: runID}, &contract.QuestionAnswered{Question: questionID, Answer: answer})
}

// Do does to a run what a person wants: says, commands or answers something, or chooses its model.
func (d *Dispatcher) Do(ctx context.Context, w Word, p contract.Payload) (uint64, error) {
	const op = "dispatch.Do"
	var seq uint64
	err := d.with(ctx, w.Run, func(r *run) (err error) {
		seq, err = d.do(ctx, r, w, p)
		return err
	})
	if err != nil && w.ID != "" {
		// It may have been done the first time, and the run may take no more since, or have ended.
		if done, known := d.done(ctx, w, p); known == nil && done > 0 {
			return done, nil
		}
	}
	return seq, fault.Wrap(op, err)
}

func (d *Dispatcher) do(ctx context.Context, r *run, w Word, p contract.Payload) (seq uint64, err error) {
	switch p := p.(type) {
	case *contract.RunSteered:
		return r.hear(ctx, w, p)
	case *contract.RunCommanded:
		if seq, err = r.said(ctx, w, "run.commanded", p); err == nil && p.Command == contract.CommandCancel {
			r.cancel(task.ErrCancelled)
		}
		return seq, err
	case *contract.QuestionAnswered:
		if _, err := d.caughtUp(ctx); err != nil { // it may have been asked a moment ago, before the run's story had it
			return 0, err
		}
		return r.answer(ctx, w, *p)
	case *contract.ModelSwitched:
		// What can't be used is refused here: the run goes on waiting for the model that it has, and is not ended by a slip.
		provider, name, err := d.options.Models.Usable(ctx, ports.ModelScope{Run: w.Run, Role: contract.KindDirector, Model: p.Model, Budget: r.Budget()})
		if err != nil {
			return 0, err
		}
		if seq, err = r.said(ctx, w, "model.switched", &contract.ModelSwitched{Model: provider + "/" + name}); err != nil {
			return 0, err
		}
		r.mu.Lock()
		close(r.another)
		r.another = make(chan struct{})
		r.mu.Unlock()
		return seq, nil
	}
	return 0, fault.New("", fault.Invalid, "", errors.New("this is not done to a run"))
}

// done returns the sequence of the event by which the same person did the same under the same id; 0 if there is none.
func (d *Dispatcher) done(ctx context.Context, w Word, p contract.Payload) (uint64, error) {
	for after, more := uint64(0), true; more; {
		events, next, again, err := d.options.Past.RunEvents(ctx, w.Run, after)
		if err != nil {
			return 0, err
		}
		for _, e := range events {
			if e.ID != w.ID || e.By() != w.By {
				continue
			}
			was, err := d.options.Log.Payload(ctx, e)
			if err != nil || !reflect.DeepEqual(was, p) {
				return 0, err
			}
			return e.Sequence, nil
		}
		after, more = next, again
	}
	return 0, nil
}
