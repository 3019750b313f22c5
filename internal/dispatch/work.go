package dispatch

import (
	"context"
	"fmt"

	"choir.dev/choiros/internal/dispatch/slots"
	"choir.dev/choiros/internal/dispatch/task"
	story "choir.dev/choiros/internal/run"
)

// work starts the goroutine that takes a task from where its attempts stand to its last result.
func (r *run) work(id string) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return // finish records its result
	}
	r.tasks.Add(1)
	r.mu.Unlock()
	r.place.Join()
	go func() {
		defer r.tasks.Done()
		defer r.place.Leave()
		defer func() {
			if p := recover(); p != nil {
				task.Abandon(r.dispatcher.host, r, id, fmt.Errorf("the dispatcher panicked: %v", p))
			}
			r.mu.Lock()
			r.settled[id] = true
			r.touch()
			r.mu.Unlock()
		}()
		place := &slots.Slot{Slots: r.dispatcher.tasks}
		r.mu.Lock()
		r.places[id] = place
		r.mu.Unlock()
		if r.place.Take(r.ctx) && place.Take(r.ctx) {
			defer place.Give()
		}
		if err := task.Work(r.dispatcher.host, r, id); err != nil {
			task.Abandon(r.dispatcher.host, r, id, err)
		}
	}()
}

// LiveElsewhere reports whether, according to the log, another task has edits in the live tree that
// are neither published nor taken back.
func (r *run) LiveElsewhere(ctx context.Context, but string) (bool, error) {
	runs, err := r.dispatcher.caughtUp(ctx)
	if err != nil {
		return false, err
	}
	live := false
	for _, r := range runs {
		r.mu.Lock()
		for _, t := range r.story.Tasks {
			live = live || t.Now.Live && t.Request.ID != but
		}
		r.mu.Unlock()
	}
	return live, nil
}

// Context implements task.Run.
func (r *run) Context() context.Context { return r.ctx }

// Gone implements task.Run.
func (r *run) Gone() error {
	if gone := r.gone(); gone != nil {
		return gone
	}
	return nil
}

// Story implements task.Run.
func (r *run) Story(look func(*story.Run)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	look(r.story)
}

// Go implements task.Run.
func (r *run) Go(f func()) {
	r.removing.Add(1)
	r.drops.Go(func() {
		defer r.removing.Add(-1)
		f()
	})
}

// Awake implements task.Run.
func (r *run) Awake() context.Context { return r.awake }

// closing reports whether the run leaves this process, and what is under way as it is.
func (r *run) closing() bool { return r.awake.Err() != nil }
