package ledger_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/ledger"
)

// Who follows the log live sees an event before its acknowledgement has come to
// the Log. Last does not have it then; Settled waits until it is known.
func TestSettledHoldsWhatCouldBeSeen(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	live := make(chan *nats.Msg, 16)
	if _, err := b.Conn().ChanSubscribe(contract.SubjectLive(cid), live); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		last uint64
		err  error
	}
	var l *ledger.Log
	answers := make(chan answer, 1)
	hold := false
	l = openLog(t, b, ledger.Options{CID: cid}.AtStep(func(point string) {
		if point != "acknowledged" || !hold {
			return
		}
		seen := <-live
		e, err := contract.UnmarshalEvent(seen.Data)
		if err != nil || e.Sequence != l.Last()+1 {
			t.Errorf("saw event %d, %v; the log's last is %d", e.Sequence, err, l.Last())
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if last, err := l.Settled(over); !errors.Is(err, context.Canceled) {
			t.Errorf("settled at %d, %v, though event %d is under way", last, err, e.Sequence)
		}
		go func() {
			last, err := l.Settled(t.Context())
			answers <- answer{last, err}
		}()
	}))
	mustAppend(t, l, prompt("one"))
	<-live
	if last, err := l.Settled(t.Context()); err != nil || last != 1 {
		t.Errorf("settled at %d, %v", last, err)
	}
	hold = true
	mustAppend(t, l, prompt("two"))
	if a := <-answers; a.err != nil || a.last != 2 {
		t.Errorf("settled at %d, %v; want 2", a.last, a.err)
	}
}

// Nobody waits for an append whose caller has left before its answer, whether
// the committer was told of it or not.
func TestSettledDoesNotWaitForWhatWasGivenUp(t *testing.T) {
	b := openBus(t, t.TempDir())
	var leave atomic.Pointer[context.CancelFunc] // the committer tries again by itself
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()}.AtStep(func(point string) {
		if point == "stamped" {
			if f := leave.Load(); f != nil {
				(*f)()
			}
		}
	}))
	settled := func() uint64 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		last, err := l.Settled(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	left := 0
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		leave.Store(&cancel)
		if _, err := l.Append(ctx, prompt("given up")); err != nil {
			left++
		}
		cancel()
		settled()
	}
	if left == 0 {
		t.Error("every append was answered before its caller had left")
	}
	leave.Store(nil)
	events := mustAppend(t, l, prompt("whole"))
	if last := settled(); last != events[0].Sequence {
		t.Errorf("settled at %d; want %d", last, events[0].Sequence)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if last := settled(); last != events[0].Sequence {
		t.Errorf("settled at %d after the log was closed", last)
	}
}
