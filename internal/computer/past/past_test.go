package past

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// open makes a log and a state, without files.
func open(t testing.TB) (*Past, *bus.Bus) {
	t.Helper()
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	blobs, err := disk.Open(filepath.Join(dir, "blobs"), blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(t.Context(), filepath.Join(dir, "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	cid := contract.NewCID()
	log, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Blobs: blobs, Index: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(log.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return New(cid, log, s, blobs, nil), b
}

// record appends n events; every hundredth belongs to the run and has a type of its own.
func record(t testing.TB, c *Past, run string, n int) {
	t.Helper()
	for n > 0 {
		drafts := make([]contract.Draft, 0, 400)
		for ; n > 0 && len(drafts) < cap(drafts); n-- {
			d := contract.Draft{Actor: contract.System(), Type: "file.removed", Data: contract.FileRemoved{Path: "workspace/a"}}
			if n%100 == 0 {
				d = contract.Draft{Actor: contract.Person(""), Type: "run.commanded", Subject: "about/it", Run: run, Data: contract.RunCommanded{Command: contract.CommandPause}}
			}
			drafts = append(drafts, d)
		}
		if _, err := c.log.Append(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
	}
}

func pages(t testing.TB, c *Past, q view.EventQuery) (seqs []uint64) {
	t.Helper()
	for range 1000 {
		p, err := c.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Events {
			seqs = append(seqs, e.Sequence)
		}
		if q.After = p.Next; !p.More {
			if p.Next != c.log.Last() {
				t.Fatalf("the last page looked up to %d of %d", p.Next, c.log.Last())
			}
			return seqs
		}
	}
	t.Fatal("there is no last page")
	return nil
}

// TestAStateThatLagsHidesNothing shows that questions about the past have the same answers whether
// the state has all of the log, half of it, or nothing.
func TestAStateThatLagsHidesNothing(t *testing.T) {
	c, _ := open(t)
	run := contract.NewID()
	record(t, c, run, 1500)
	var want []uint64
	for e, err := range first(t.Context(), c.log, 1500) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Run == run {
			want = append(want, e.Sequence)
		}
	}
	for _, upTo := range []uint64{0, 730, 1500} {
		if err := c.state.Recover(t.Context(), until{c.log, upTo}); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1, 4, 0} {
			for _, q := range []view.EventQuery{{Run: run}, {Types: []string{"run.commanded"}}, {Types: []string{"run.commanded", "theme.changed"}}, {Subject: "about/it"}} {
				if q.Limit = limit; !slices.Equal(pages(t, c, q), want) {
					t.Errorf("%+v with the state at %d: not what the log holds", q, upTo)
				}
			}
		}
		if got := pages(t, c, view.EventQuery{Types: []string{"run.commanded"}, After: want[3]}); !slices.Equal(got, want[4:]) {
			t.Errorf("behind %d: %d", want[3], got)
		}
	}
}

// TestThePastIsAnsweredByAnIndex shows that questions about the past are answered without reading
// the log: here there is none.
func TestThePastIsAnsweredByAnIndex(t *testing.T) {
	c, b := open(t)
	run := contract.NewID()
	record(t, c, run, 1500)
	if err := c.state.Recover(t.Context(), c.log); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.log.Read(ctx, 0, 1); err == nil {
		t.Fatal("the log can still be read, so that this test proves nothing")
	}
	for _, q := range []view.EventQuery{{Run: run}, {Types: []string{"run.commanded"}}, {Subject: "about/it", Types: []string{"run.commanded"}}} {
		if p, err := c.Events(t.Context(), q); err != nil || len(p.Events) != 15 || p.More {
			t.Errorf("%+v: %d events, %v", q, len(p.Events), err)
		}
	}
	if events, next, more, err := (runspace.Past{Log: c.log, State: c.state, Page: c.Events}).RunEvents(t.Context(), run, 0); err != nil || len(events) != 15 || next != 1500 || more {
		t.Errorf("of the run %d events up to %d, %v", len(events), next, err)
	}
}

// until is a log as it was at a sequence.
type until struct {
	state.Log
	last uint64
}

func (u until) Last() uint64 { return u.last }

func first(ctx context.Context, l *ledger.Log, n uint64) iter.Seq2[contract.Event, error] {
	ctx, cancel := context.WithCancel(ctx)
	return func(yield func(contract.Event, error) bool) {
		defer cancel()
		for e, err := range l.Follow(ctx, 0) {
			if !yield(e, err) || e.Sequence == n {
				return
			}
		}
	}
}

// BenchmarkPast asks a log of 100,000 events for 5 events of a type, and for a run's events.
func BenchmarkPast(b *testing.B) {
	c, _ := open(b)
	runs := []string{contract.NewID(), contract.NewID()}
	record(b, c, runs[0], 500)
	record(b, c, runs[1], 99_500)
	if err := c.state.Recover(b.Context(), c.log); err != nil {
		b.Fatal(err)
	}
	for _, q := range []view.EventQuery{{Types: []string{"run.commanded"}, Limit: 5}, {Types: []string{"run.commanded"}, Limit: 5, After: 99_000}, {Types: []string{"run.commanded", "theme.changed"}, Limit: 5, After: 50_000},
		{Run: runs[0]}, {Run: runs[0], Types: []string{"run.commanded"}}} {
		b.Run(fmt.Sprintf("%d types, run %t, after %d", len(q.Types), q.Run != "", q.After), func(b *testing.B) {
			for b.Loop() {
				if p, err := c.Events(b.Context(), q); err != nil || len(p.Events) != 5 {
					b.Fatal(len(p.Events), err)
				}
			}
		})
	}
	b.Run("appended since midnight", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.state.Appended(b.Context(), time.Now().Add(time.Hour)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestAPausedRunIsSaidToBePaused shows that a run that was paused is shown so, with who did it and when, until it goes on.
func TestAPausedRunIsSaidToBePaused(t *testing.T) {
	c, _ := open(t)
	run := contract.NewID()
	say := func(by contract.Actor, typ string, p contract.Payload) {
		t.Helper()
		if _, err := c.log.Append(t.Context(), contract.Draft{Actor: by, Type: typ, Subject: run, Run: run, Data: p}); err != nil {
			t.Fatal(err)
		}
		if err := c.state.Recover(t.Context(), c.log); err != nil {
			t.Fatal(err)
		}
	}
	paused := func() *view.Paused {
		t.Helper()
		one, err := c.Run(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.Runs(t.Context(), 0, 10)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if (list[0].Paused == nil) != (one.Paused == nil) {
			t.Errorf("in the list %+v, alone %+v", list[0].Paused, one.Paused)
		}
		return one.Paused
	}
	ada := contract.Person("u-ada")
	say(ada, "prompt.submitted", contract.PromptSubmitted{Text: "go"})
	if p := paused(); p != nil {
		t.Errorf("it was never paused: %+v", p)
	}
	say(ada, "run.commanded", contract.RunCommanded{Command: contract.CommandPause})
	if p := paused(); p == nil || p.By != ada.Name() || p.Since.IsZero() {
		t.Errorf("it is paused: %+v", p)
	}
	say(ada, "run.commanded", contract.RunCommanded{Command: contract.CommandResume})
	if p := paused(); p != nil {
		t.Errorf("it goes on: %+v", p)
	}
}
