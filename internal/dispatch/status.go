package dispatch

import (
	"context"
	"slices"

	"choir.dev/choiros/contract"
)

// wait is something that the run waits for.
type wait struct {
	reason string // what its user is told of it; "" where another event says it
}

// Waits implements task.Run.
func (r *run) Waits(reason string) (over func()) {
	w := &wait{reason}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = append(r.waits, w)
	r.touch()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waits = slices.DeleteFunc(r.waits, func(o *wait) bool { return o == w })
		r.touch()
	}
}

// Settle appends run.moved if the run does something else now than its story says, or waits for something else.
func (r *run) Settle(ctx context.Context) error {
	to, reason, news := r.doing(false)
	if !news {
		return nil
	}
	return r.moveTo(ctx, to, reason)
}

// moveTo appends run.moved.
func (r *run) moveTo(ctx context.Context, to contract.RunStatus, reason string) error {
	_, err := r.Append(ctx, r.moved(to, reason))
	return err
}

func (r *run) moved(to contract.RunStatus, reason string) contract.Draft {
	return contract.Draft{Actor: contract.System(), Type: "run.moved", Subject: r.story.ID, Data: &contract.RunMoved{Status: to, Reason: reason}}
}

// doing is the status of what the run is doing now, or will with one more task if more is set, and whether
// that is news. Of all that it waits for, the reason is the newest that there is to say.
func (r *run) doing(more bool) (to contract.RunStatus, reason string, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to = contract.RunPlanning
	more = more || r.story.Direct != "" && len(r.story.Tasks) == 0 // it begins with its task
	for _, t := range r.story.Tasks {
		more = more || !t.Ended()
	}
	if more {
		to = contract.RunWorking
	}
	if r.story.Paused || len(r.waits) > 0 {
		to = contract.RunWaiting
	}
	for _, w := range r.waits {
		if w.reason != "" {
			reason = w.reason
		}
	}
	return to, reason, to != r.story.Status || to == contract.RunWaiting && reason != r.story.Reason
}
