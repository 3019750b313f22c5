package dispatch

import (
	"context"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	story "choir.dev/choiros/internal/run"
)

// Meanwhile implements task.Run. What is noticed is an event before anybody is told of it, so that a loop which resumes is told the same.
// A loop is not kept from its work because it can't be noticed now: then it is the next time.
func (r *run) Meanwhile(ctx context.Context, ref ports.TaskRef) (notes []string) {
	w, upTo := r.watch(ref)
	if w == nil {
		return nil
	}
	task := func(look func(*story.Task)) {
		r.Story(func(s *story.Run) { look(s.Task(ref.Task)) })
	}
	err := w.Notice(ctx, upTo, task, func(p contract.Outdated, n int) error {
		_, err := r.Append(ctx, contract.Draft{ID: contract.DeriveID(ref.Task, fmt.Sprintf("outdated:%d:%d", ref.Attempt, n)), Actor: contract.System(),
			Type: "task.outdated", Subject: ref.Task, Task: ref.Task, Data: &p})
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.dispatcher.log.Warn("what others changed of the files that a loop works with could not be noticed", "task", ref.Task, "attempt", ref.Attempt, "error", err)
	}
	task(func(t *story.Task) { notes = summary.Outdated(t) })
	return notes
}

// watch returns what watches the files of an attempt, if its loop can be told, and up to where the log says of files that they changed.
func (r *run) watch(ref ports.TaskRef) (*meanwhile.Watch, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.story.Task(ref.Task)
	if t == nil || t.Now.Number != ref.Attempt || !t.Request.Kind.Thinks() {
		return nil, 0
	}
	w := r.watches[ref]
	if w == nil {
		o := r.dispatcher.options
		w = meanwhile.New(meanwhile.Options{Feed: r.dispatcher.feed, Contains: o.Workspace.Contains, Logger: r.dispatcher.log,
			Task: ref.Task, Attempt: ref.Attempt, Base: t.Now.Base, After: t.Asked})
		for old := range r.watches {
			if old.Task == ref.Task {
				delete(r.watches, old) // an attempt that is over
			}
		}
		r.watches[ref] = w
	}
	return w, r.live
}
