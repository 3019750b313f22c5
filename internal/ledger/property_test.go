package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Any sequence of appends, repeats, expectations and reopenings has the same results as a
// plain list.
func TestLogBehavesLikeAList(t *testing.T) {
	b := openBus(t, t.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		cid := contract.NewCID()
		var l *ledger.Log
		reopen := func() {
			if l != nil && rapid.Bool().Draw(t, "close first") {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			next, err := ledger.Open(context.Background(), b.JetStream(), ledger.Options{CID: cid})
			if err != nil {
				t.Fatal(err)
			}
			l = next
		}
		reopen()
		defer func() { _ = l.Close() }()
		type stored struct{ id, subject, text string }
		var model []stored
		newest := func(list []stored, subject string) uint64 {
			for i := len(list) - 1; i >= 0; i-- {
				if list[i].subject == subject {
					return uint64(i + 1)
				}
			}
			return 0
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "reopen") == 0 {
				reopen()
			}
			next := append([]stored(nil), model...)
			var drafts []contract.Draft
			var seqs []uint64
			refused := false
			n := rapid.IntRange(1, 4).Draw(t, "drafts")
			if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
				n = tooLong
			}
			for range n {
				s := stored{id: contract.NewID(), subject: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "subject"), text: rapid.StringMatching(`[a-z<>]{1,8}`).Draw(t, "text")}
				repeat := len(next) > 0 && rapid.IntRange(0, 2).Draw(t, "repeat") == 0
				if repeat {
					s = rapid.SampledFrom(next).Draw(t, "of")
					if rapid.IntRange(0, 9).Draw(t, "altered") == 0 {
						s.text += "x"
						refused = true
					}
				}
				d := renamed(s.text, s.subject)
				d.ID = s.id
				if rapid.IntRange(0, 2).Draw(t, "expect") == 0 {
					last := newest(next, s.subject)
					if rapid.IntRange(0, 3).Draw(t, "wrong") == 0 {
						last++
						refused = refused || !repeat // what is stored already has met its expectation
					}
					d.Expect = &contract.Expect{Last: last}
				}
				drafts = append(drafts, d)
				if repeat {
					for i, m := range next {
						if m.id == s.id {
							seqs = append(seqs, uint64(i+1))
						}
					}
				} else {
					next = append(next, s)
					seqs = append(seqs, uint64(len(next)))
				}
			}
			events, err := l.Append(context.Background(), drafts...)
			if refused {
				if !fault.Is(err, fault.Conflict) {
					t.Fatalf("want a conflict, got %v", err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				for i, e := range events {
					if e.Sequence != seqs[i] || e.ID != drafts[i].ID {
						t.Fatalf("draft %d came back as %d, want %d", i, e.Sequence, seqs[i])
					}
				}
				model = next
			}
			if l.Last() != uint64(len(model)) {
				t.Fatalf("last is %d, want %d", l.Last(), len(model))
			}
		}
		reopen()
		var seen int
		for seen < len(model) {
			page, err := l.Read(context.Background(), uint64(seen), rapid.IntRange(1, 7).Draw(t, "page"))
			if err != nil || len(page) == 0 {
				t.Fatalf("read after %d: %d events, %v", seen, len(page), err)
			}
			for _, e := range page {
				p, err := l.Payload(context.Background(), e)
				if err != nil {
					t.Fatal(err)
				}
				got := stored{e.ID, e.Subject, p.(*contract.ComputerRenamed).Name}
				if e.Sequence != uint64(seen+1) || got != model[seen] {
					t.Fatalf("event %d is %+v, want %+v", e.Sequence, got, model[seen])
				}
				seen++
			}
		}
	})
}

// Connections break at random while many goroutines append, repeat and reopen; repeating an
// append with the same id after an unknown outcome must never store an event twice.
func TestNothingIsLostOrDoubledWhenConnectionsBreak(t *testing.T) {
	js, f := openFlaky(t)
	cid := contract.NewCID()
	l, err := ledger.Open(t.Context(), js, ledger.Options{CID: cid})
	if err != nil {
		t.Fatal(err)
	}
	// The connection is cut each time after some progress, while the others are appending.
	progress := make(chan struct{}, 1000)
	var cutter, wg sync.WaitGroup
	cuts := 0
	cutter.Go(func() {
		left := 1
		for range progress {
			if left--; left <= 0 {
				f.cut()
				cuts++
				left = 1 + rand.IntN(8)
			}
		}
	})
	var mu sync.Mutex
	acked := map[string]uint64{}
	for w := range 6 {
		wg.Go(func() {
			for i := range 60 {
				drafts := make([]contract.Draft, pick([]int{1, 1, 1, 3, 60}))
				for j := range drafts {
					drafts[j] = prompt(fmt.Sprint(w, " ", i, " ", j))
					drafts[j].ID = contract.NewID()
				}
				for {
					ctx, cancel := context.WithTimeout(context.Background(), pick([]time.Duration{time.Millisecond, 20 * time.Millisecond, time.Minute}))
					events, err := l.Append(ctx, drafts...)
					cancel()
					if err == nil {
						mu.Lock()
						for _, e := range events {
							acked[e.ID] = e.Sequence
						}
						mu.Unlock()
						progress <- struct{}{}
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) && !fault.Is(err, fault.Unavailable) {
						t.Errorf("append: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	close(progress)
	cutter.Wait()
	t.Logf("%d events acknowledged over %d cuts", len(acked), cuts)
	for range 2 {
		seen := map[string]bool{}
		for _, e := range wholeLog(t, l) {
			if seen[e.ID] {
				t.Fatalf("event %s is in the log twice", e.ID)
			}
			seen[e.ID] = true
			if acked[e.ID] != e.Sequence {
				t.Fatalf("event %s is %d, acknowledged as %d", e.ID, e.Sequence, acked[e.ID])
			}
		}
		if len(seen) != len(acked) {
			t.Fatalf("%d events stored, %d acknowledged", len(seen), len(acked))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = ledger.Open(t.Context(), js, ledger.Options{CID: cid}); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
}
