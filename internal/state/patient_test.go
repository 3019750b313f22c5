package state_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
)

// asked is a context that says when it was first asked for a value: by a wait that has seen that projection has stopped.
type asked struct {
	context.Context
	once sync.Once
	now  chan struct{}
}

func (a *asked) Value(key any) any {
	a.once.Do(func() { close(a.now) })
	return a.Context.Value(key)
}

// TestWhoIsPatientOutlastsAProjectionThatStops shows that a wait goes on until projection is tried again, or its patience
// is over.
func TestWhoIsPatientOutlastsAProjectionThatStops(t *testing.T) {
	l, s := newLog(), newStore(t)
	story(t, l)
	if err := s.Project(t.Context(), brokenLog{l}); err == nil {
		t.Fatal("a log with a hole was projected")
	}
	if err := s.Wait(awake.Patient(t.Context(), time.Millisecond), 1); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a patient waiter, behind its patience: %v", err)
	}
	seen := &asked{Context: awake.Patient(t.Context(), time.Minute), now: make(chan struct{})}
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(seen, l.Last()) }()
	<-seen.now
	ctx, stop := context.WithCancel(t.Context())
	projected := make(chan error, 1)
	go func() { projected <- s.Project(ctx, l) }() // it is tried again
	if err := <-waited; err != nil {
		t.Errorf("a patient waiter: %v", err)
	}
	stop()
	<-projected
}
