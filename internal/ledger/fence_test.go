package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

func TestYoungerOwnerFencesTheOlder(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	older := openLog(t, b, ledger.Options{CID: cid})
	mustAppend(t, older, prompt("one"))
	younger := openLog(t, b, ledger.Options{CID: cid})
	if older.Epoch() != 1 || younger.Epoch() != 2 {
		t.Fatalf("epochs %d and %d, want 1 and 2", older.Epoch(), younger.Epoch())
	}
	// Opening a log takes nothing away from its owner, and the claim does not conflict
	// with what the owner has stored meanwhile.
	mustAppend(t, older, prompt("two"))
	if e := mustAppend(t, younger, prompt("three"))[0]; e.Sequence != 3 || e.Epoch != 2 {
		t.Fatalf("the claim is event %d of epoch %d", e.Sequence, e.Epoch)
	}
	for range 3 { // it stays so
		_, err := older.Append(t.Context(), prompt("never"))
		if !errors.Is(err, ledger.ErrFenced) || !fault.Is(err, fault.InUse) || fault.HintOf(err) == "" {
			t.Fatalf("the older owner's append: %v, want ErrFenced with a hint", err)
		}
	}
	for _, err := range older.Follow(t.Context(), older.Last()) {
		if !errors.Is(err, ledger.ErrFenced) {
			t.Errorf("a follower of the fenced log got %v", err)
		}
	}
	mustAppend(t, younger, prompt("four"))
	if n := len(wholeLog(t, younger)); n != 4 {
		t.Errorf("the log holds %d events, want 4", n)
	}
}

// A server that was killed removes what it had stored of an unfinished batch, and its
// stream continues behind positions without a message. The log continues, too.
func TestTheLogGoesOnBehindWhatWasTakenBack(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	mustAppend(t, l, prompt("one"))
	stray := contract.SubjectLog(cid, contract.KindPerson, "stray")
	stream, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	takenBack := func() {
		t.Helper()
		if _, err := b.JetStream().Publish(t.Context(), stray, []byte("taken back")); err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(stray)); err != nil {
			t.Fatal(err)
		}
	}
	takenBack()
	mustAppend(t, l, prompt("two"))
	takenBack()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, b, ledger.Options{CID: cid})
	mustAppend(t, l, prompt("three"), prompt("four"))
	takenBack()
	five, six := prompt("five"), prompt("six")
	five.ID, six.ID = contract.NewID(), contract.NewID()
	if _, err := l.AppendEach(t.Context(), five, six); err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.LastSeq != 7 || info.State.Msgs != 4 {
		t.Errorf("the stream has %d messages up to position %d, %v", info.State.Msgs, info.State.LastSeq, err)
	}
	checkChain(t, cid, wholeLog(t, l))
}

// Of two that open the log at the same end and claim the same epoch, one succeeds.
func TestOneClaimWins(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	mustAppend(t, openLog(t, b, ledger.Options{CID: cid}), prompt("before"))
	var logs []*ledger.Log
	for range 5 {
		logs = append(logs, openLog(t, b, ledger.Options{CID: cid}))
	}
	// Both append drafts with the same derived ids: what one stored must not count as the
	// other's own.
	draft := prompt("claim")
	draft.ID = contract.NewID()
	errs := make([]error, len(logs))
	var wg sync.WaitGroup
	for i, l := range logs {
		wg.Go(func() {
			d := draft
			d.Data = contract.PromptSubmitted{Text: fmt.Sprint("claim ", i)}
			d.ID = contract.NewID()
			_, errs[i] = l.Append(context.Background(), d)
		})
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			if n := len(wholeLog(t, logs[i])); n != 2 {
				t.Errorf("the winner's log holds %d events", n)
			}
		} else if !errors.Is(err, ledger.ErrFenced) {
			t.Errorf("a loser got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d claims won", won)
	}
}

// One owner after another takes the log over while all of them write.
func TestOwnersNeverInterleave(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	var mu sync.Mutex
	acked := map[string]uint64{}
	var wg sync.WaitGroup
	var last *ledger.Log
	for owner := range 5 {
		l := openLog(t, b, ledger.Options{CID: cid})
		last = l
		started := make(chan struct{})
		for w := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if owner == 4 && i > 30 {
						return
					}
					drafts := make([]contract.Draft, 1+i%3)
					for j := range drafts {
						drafts[j] = prompt(fmt.Sprint(owner, w, i, j))
					}
					events, err := l.Append(context.Background(), drafts...)
					if errors.Is(err, ledger.ErrFenced) {
						return
					}
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					mu.Lock()
					for _, e := range events {
						acked[e.ID] = e.Sequence
					}
					mu.Unlock()
					if w == 0 && i == 10 {
						close(started)
					}
				}
			})
		}
		select {
		case <-started:
		case <-time.After(30 * time.Second):
			t.Fatal("an owner does not get on")
		}
	}
	wg.Wait()
	all := wholeLog(t, last)
	epoch := uint64(1)
	for _, e := range all {
		if e.Epoch < epoch {
			t.Fatalf("event %d is of epoch %d, after epoch %d", e.Sequence, e.Epoch, epoch)
		}
		epoch = e.Epoch
		if seq, ok := acked[e.ID]; ok && seq != e.Sequence {
			t.Errorf("event %d was acknowledged as %d", e.Sequence, seq)
		}
		delete(acked, e.ID)
	}
	if len(acked) != 0 {
		t.Errorf("%d acknowledged events are not in the log", len(acked))
	}
}

func TestComputersShareTheServer(t *testing.T) {
	b := openBus(t, t.TempDir())
	var wg sync.WaitGroup
	for range 6 {
		l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
		wg.Go(func() {
			for i := range 15 {
				drafts := make([]contract.Draft, 1+i%4)
				for j := range drafts {
					drafts[j] = prompt(fmt.Sprint(i, " ", j))
				}
				events, err := l.Append(context.Background(), drafts...)
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				for j, e := range events {
					if e.Sequence != events[0].Sequence+uint64(j) {
						t.Errorf("one call's events are %d and %d", events[0].Sequence, e.Sequence)
					}
				}
			}
		})
		t.Cleanup(func() { wholeLog(t, l) })
	}
	wg.Wait()
}

func TestCloseReleasesWaiters(t *testing.T) {
	b := openBus(t, t.TempDir())
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	mustAppend(t, l, prompt("one"))
	var got []error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range l.Follow(context.Background(), 0) {
			got = append(got, err)
		}
	}()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a follower outlives its log")
	}
	if len(got) != 2 || got[0] != nil || !fault.Is(got[1], fault.Unavailable) {
		t.Errorf("the follower saw %v", got)
	}
	if _, err := l.Append(t.Context(), prompt("two")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("append after close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openLog(t, b, ledger.Options{CID: contract.NewCID()}).Append(ctx, prompt("x")); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("append under an ended context: %v", err)
	}
}
