package ledger_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Calls that come while others are being stored are stored together in one message, and
// each gets the result that it would have got alone: its own event, the one stored before,
// or a refusal.
func TestCallsAreStoredTogether(t *testing.T) {
	const callers, rounds = 8, 60
	b := openBus(t, t.TempDir())
	var refused atomic.Int64
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	stored := make([]map[uint64]string, callers)
	var g errgroup.Group
	for c := range callers {
		stored[c] = map[uint64]string{}
		g.Go(func() error {
			for n := range rounds {
				d := prompt(fmt.Sprintf("%d of %d", n, c))
				d.ID = contract.NewID()
				if n%5 == 4 { // two callers want the same thing to be next
					d.Subject, d.Expect = fmt.Sprintf("s-%d-%d", c/2, n), &contract.Expect{}
				}
				got, err := l.Append(t.Context(), d)
				var no *ledger.ExpectError
				if errors.As(err, &no) && fault.Is(err, fault.Conflict) && d.Expect != nil {
					refused.Add(1)
					continue
				}
				if err != nil {
					return err
				}
				if l.Last() < got[0].Sequence {
					return fmt.Errorf("event %d is acknowledged, and the log ends at %d", got[0].Sequence, l.Last())
				}
				stored[c][got[0].Sequence] = d.ID
				if n%7 == 6 { // said again, it is the same event
					again, err := l.Append(t.Context(), d)
					if err != nil || again[0].Sequence != got[0].Sequence {
						return fmt.Errorf("said again: %v, %v", again, err)
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if refused.Load() == 0 {
		t.Error("no call was refused, so that this says nothing of those that are")
	}
	ids := map[uint64]string{}
	for _, m := range stored {
		for seq, id := range m {
			ids[seq] = id
		}
	}
	n := 0
	for after := uint64(0); ; {
		page, err := l.Read(t.Context(), after, 0) // which looks at sequences and chain
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			after = e.Sequence
			if n++; ids[after] != e.ID {
				t.Errorf("event %d is %s; whoever stored it was told of %s", after, e.ID, ids[after])
			}
		}
	}
	if n != len(ids) {
		t.Errorf("the log has %d events; %d were acknowledged", n, len(ids))
	}
	stream, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	if messages := stream.CachedInfo().State.Msgs; messages*2 > uint64(n) {
		t.Errorf("%d events are in %d messages", n, messages)
	}
}
