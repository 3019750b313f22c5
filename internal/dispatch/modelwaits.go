package dispatch

import (
	"context"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	story "choir.dev/choiros/internal/run"
)

// modelWaits tells a run's user when a call of one of its loops waits for its model. That time is not the run's: its
// clock stands, as while its user is asked. A call of a paused run waits until the run goes on.
type modelWaits struct {
	run  *run
	task string // "" for the Director
	rest func(context.Context) error

	mu   sync.Mutex
	over func() // ends that the run waits; nil while it does not
}

// ModelWaits returns what is told of the waits of a task's loop.
func (r *run) ModelWaits(id string) ports.ModelWaiter {
	going := func(s *story.Run) bool { return !s.Paused }
	return &modelWaits{run: r, task: id, rest: func(ctx context.Context) error {
		goes := false
		r.Story(func(s *story.Run) { goes = going(s) })
		if goes {
			return nil
		}
		return r.Rest(id, func() error { return r.Until(ctx, going) })
	}}
}

// Chosen returns the model that the user has chosen for the run, and a channel that is closed when they choose another.
func (r *run) Chosen() (string, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.story.Switched != "" {
		return r.story.Switched, r.another
	}
	return r.story.Prompt.Model, r.another
}

// Ready implements ports.ModelWaiter.
func (w *modelWaits) Ready(ctx context.Context) error { return w.rest(ctx) }

// Settled implements ports.ModelWaiter.
func (w *modelWaits) Settled(ctx context.Context) error {
	w.run.held.Add(1) // an answer that was paid for is not asked for again
	defer w.run.held.Add(-1)
	return w.rest(ctx)
}

// Waiting implements ports.ModelWaiter.
func (w *modelWaits) Waiting(ctx context.Context, m contract.ModelWaiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil {
		w.over = w.run.Waits("")
		w.settle(ctx)
	}
	w.tell(ctx, "model.waiting", &m)
}

// Resumed implements ports.ModelWaiter.
func (w *modelWaits) Resumed(ctx context.Context, m contract.ModelResumed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil && m.Instead == "" {
		return // it did not wait long enough to be told
	}
	w.tell(ctx, "model.resumed", &m)
	if w.over != nil {
		w.over()
		w.over = nil
		w.settle(ctx)
	}
}

// tell appends an event. The call goes on without it: who reads the run sees later what it waits for.
func (w *modelWaits) tell(ctx context.Context, eventType string, p contract.Payload) {
	if _, err := w.run.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Subject: w.run.story.ID, Task: w.task, Data: p}); err != nil && ctx.Err() == nil {
		w.run.dispatcher.log.Warn("that a model is waited for could not be recorded", "run", w.run.story.ID, "task", w.task, "event", eventType, "error", err)
	}
}

func (w *modelWaits) settle(ctx context.Context) {
	if err := w.run.Settle(ctx); err != nil && ctx.Err() == nil {
		w.run.dispatcher.log.Warn("a run's status could not be recorded", "run", w.run.story.ID, "error", err)
	}
}
