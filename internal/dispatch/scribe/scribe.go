// Package scribe stores what a loop says in the order in which it says it, and waits for the disk
// only where something may happen because of it.
package scribe

import (
	"context"
	"errors"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/supervise"
)

// Scribe stores events of one loop. What it is given is never stored behind what it is given
// later. The first error is the last thing it does: nothing that it was given since is stored.
type Scribe struct {
	// Append stores drafts as one call: all of them or none. The context that it gets ends with it.
	Append func(drafts ...contract.Draft) error
	// Alone stores by itself what is owed where Append could not: Append, unless it is set.
	Alone func(drafts ...contract.Draft) error

	mu      sync.Mutex
	queue   []saying
	writing bool
	err     error
	changed *sync.Cond
}

type saying struct {
	draft contract.Draft
	done  *bool // nobody waits where it is nil
	owed  bool
}

// maxAhead bounds how many events may wait to be stored without anybody waiting for them.
const maxAhead = 16

// New returns a Scribe that stores with append.
func New(append func(drafts ...contract.Draft) error) *Scribe {
	s := &Scribe{Append: append, Alone: append}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Hold keeps an event until the next one comes, with which it is stored. It is for what means
// nothing without that.
func (s *Scribe) Hold(d contract.Draft) error { return s.add(saying{draft: d}, false) }

// Owe is Hold of an event that says what has happened already, such as what was spent: it is stored even if nothing else can be.
func (s *Scribe) Owe(d contract.Draft) error {
	if s.add(saying{draft: d, owed: true}, false) == nil {
		return nil
	}
	return s.Alone(d)
}

// Later stores an event with those that are held, without waiting for it. It is for what may be
// said again, or counts as unknown, if it is lost.
func (s *Scribe) Later(d contract.Draft) error { return s.add(saying{draft: d}, true) }

func (s *Scribe) add(e saying, write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && len(s.queue) >= maxAhead {
		s.write()
		s.changed.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.queue = append(s.queue, e)
	if write {
		s.write()
	}
	return nil
}

// Now stores an event, and all before it, and waits until they are.
func (s *Scribe) Now(ctx context.Context, d contract.Draft) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	var done bool
	s.queue = append(s.queue, saying{draft: d, done: &done})
	s.write()
	for !done && s.err == nil {
		s.changed.Wait()
	}
	if done {
		return nil
	}
	return s.err
}

// Wait waits until everything is stored that the scribe was given.
func (s *Scribe) Wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && (len(s.queue) > 0 || s.writing) {
		s.write()
		s.changed.Wait()
	}
	for s.writing {
		s.changed.Wait()
	}
	return s.err
}

// write lets a goroutine store what waits; whoever calls Wait last waits for it. The caller holds mu.
func (s *Scribe) write() {
	if s.writing || s.err != nil || len(s.queue) == 0 {
		return
	}
	s.writing = true
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for s.err == nil && len(s.queue) > 0 {
			group := s.queue
			s.queue = nil
			drafts := make([]contract.Draft, len(group))
			for i, e := range group {
				drafts[i] = e.draft
			}
			s.mu.Unlock()
			err := supervise.Safely(func() error { return s.Append(drafts...) })
			s.mu.Lock()
			s.err = err
			for _, e := range group {
				if e.done != nil && err == nil {
					*e.done = true
				}
			}
			if err != nil {
				s.pay(append(group, s.queue...))
			}
			s.changed.Broadcast()
		}
		s.writing = false
		s.changed.Broadcast()
	}()
}

// pay stores what is owed of what can't be stored. The caller holds mu, and has set err.
func (s *Scribe) pay(lost []saying) {
	s.queue = nil
	var owed []contract.Draft
	for _, e := range lost {
		if e.owed {
			owed = append(owed, e.draft)
		}
	}
	if len(owed) == 0 {
		return
	}
	s.mu.Unlock()
	err := supervise.Safely(func() error { return s.Alone(owed...) })
	s.mu.Lock()
	s.err = errors.Join(s.err, err)
}
