package boxes

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// crowded is a computer on a machine that has room for no further box until one ends.
type crowded struct {
	sandbox.Computer
	room *bool
}

func (c crowded) Box(_ context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	if !*c.room {
		return nil, fmt.Errorf("open a pipe: %w", unix.EMFILE)
	}
	return opened{id: spec.ID}, nil
}

type opened struct {
	sandbox.Box
	id string
}

func (o opened) ID() string             { return o.id }
func (o opened) Kind() contract.BoxKind { return contract.BoxKeeper }
func (o opened) Done() <-chan struct{}  { return ended }
func (o opened) Err() error             { return nil }

var ended = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// TestABoxThatIsNeededHasThePlaceOfOneThatWaits shows that where a machine can open no other box, what waits in
// any of its computers is ended for one that somebody needs, and for none that nobody does.
func TestABoxThatIsNeededHasThePlaceOfOneThatWaits(t *testing.T) {
	room, ends := false, 0
	of := machineDependencies(t, "cid-one", "cid-two")
	needs, waits := of[0].boxes, of[1].boxes
	needs.options.On = crowded{needs.options.On, &room}
	needs.options.Append = func(context.Context, ...contract.Draft) ([]contract.Event, error) { return nil, nil }
	open := func(f func(context.Context, sandbox.BoxSpec) (sandbox.Box, error), want bool, ended int) {
		t.Helper()
		_, err := f(t.Context(), sandbox.BoxSpec{ID: "b", Kind: contract.BoxTask})
		if (err == nil) != want || err != nil && !fault.Is(err, fault.Unavailable) || ends != ended {
			t.Errorf("a box: %v; what waits was ended %d times, want %d", err, ends, ended)
		}
	}
	nothing := waits.Lend(func() bool { ends++; return false })
	open(needs.Open, false, 1)
	nothing()
	stop := waits.Lend(func() bool { ends++; room = true; return true })
	open(needs.Ahead, false, 1)
	open(needs.Open, true, 2)
	room = false
	stop()
	open(needs.Open, false, 2)
}
