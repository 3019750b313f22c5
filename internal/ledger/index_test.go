package ledger_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// memoryIndex is an index like the state database: a projection that lags behind.
type memoryIndex struct {
	mu      sync.Mutex
	events  []contract.Event
	covered int // how many of them it admits to
	asked   int // for an id
	howFar  int // how often it was asked what it covers
}

func (x *memoryIndex) LastSeq(context.Context) (uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.howFar++
	return uint64(x.covered), nil
}

func (x *memoryIndex) ByID(_ context.Context, source, id string) (uint64, [sha256.Size]byte, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	for _, e := range x.events[:x.covered] {
		if e.ID == id && contract.Origin(e.Source) == source {
			return e.Sequence, contract.Digest(e), true, nil
		}
	}
	return 0, [sha256.Size]byte{}, false, nil
}

func (x *memoryIndex) LastBySubject(_ context.Context, subject string) (uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := x.covered - 1; i >= 0; i-- {
		if x.events[i].Subject == subject {
			return x.events[i].Sequence, nil
		}
	}
	return 0, nil
}

func (x *memoryIndex) cover(l *ledger.Log, t *testing.T, n int) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.events) < n {
		page, err := l.Read(t.Context(), uint64(len(x.events)), 0)
		if err != nil || len(page) == 0 {
			t.Fatalf("read: %d events, %v", len(page), err)
		}
		x.events = append(x.events, page...)
	}
	x.covered = n
}

// Repeats and expectations work wherever the event is: only in memory, only in the index,
// or in both.
func TestIndexStandsInForMemory(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid, x := contract.NewCID(), &memoryIndex{}
	l := openLog(t, b, ledger.Options{CID: cid, Index: x})
	var drafts []contract.Draft
	more := func(n int) {
		batch := make([]contract.Draft, n)
		for i := range batch {
			batch[i] = renamed(fmt.Sprint("name ", len(drafts)), fmt.Sprint("subject/", len(drafts)))
			batch[i].ID = contract.NewID()
			drafts = append(drafts, batch[i])
		}
		mustAppend(t, l, batch...)
	}
	check := func(what string) {
		t.Helper()
		last := l.Last()
		for _, i := range []int{0, 1, len(drafts) / 2, len(drafts) - 2, len(drafts) - 1} {
			if e := mustAppend(t, l, drafts[i])[0]; e.Sequence != uint64(i+1) {
				t.Errorf("%s: draft %d again is event %d", what, i, e.Sequence)
			}
			altered := drafts[i]
			altered.Data = contract.ComputerRenamed{Name: "altered"}
			if _, err := l.Append(t.Context(), altered); !fault.Is(err, fault.Conflict) {
				t.Errorf("%s: draft %d altered: %v", what, i, err)
			}
			wrong := renamed("x", drafts[i].Subject)
			wrong.Expect = &contract.Expect{Last: uint64(i)}
			if _, err := l.Append(t.Context(), wrong); !fault.Is(err, fault.Conflict) {
				t.Errorf("%s: subject %d with a wrong expectation: %v", what, i, err)
			}
		}
		if l.Last() != last {
			t.Errorf("%s: the log grew from %d to %d", what, last, l.Last())
		}
	}
	for range 5 {
		more(300)
	}
	check("nothing covered")
	x.cover(l, t, 700)
	more(300) // more than enough to be asked for
	check("partly covered")
	x.cover(l, t, 1800)
	more(1)
	check("nearly all covered")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, b, ledger.Options{CID: cid, Index: x})
	check("opened again")
	right := renamed("right", drafts[10].Subject)
	right.Expect = &contract.Expect{Last: 11}
	mustAppend(t, l, right)
	if n := len(wholeLog(t, l)); n != len(drafts)+1 {
		t.Errorf("the log holds %d events, want %d", n, len(drafts)+1)
	}
	// An index that is ahead of the log, as after a restore from a backup, is not
	// believed.
	ahead := &memoryIndex{events: wholeLog(t, l)}
	ahead.covered = len(ahead.events)
	other := openLog(t, b, ledger.Options{CID: contract.NewCID(), Index: ahead})
	mustAppend(t, other, prompt("first of its log"))
}

// An index that does not advance is not asked with each event how far it is.
func TestAnIndexThatStandsStillIsAskedNowAndThen(t *testing.T) {
	b := openBus(t, t.TempDir())
	x := &memoryIndex{}
	l := openLog(t, b, ledger.Options{CID: contract.NewCID(), Index: x})
	for range 7 {
		batch := make([]contract.Draft, 200)
		for i := range batch {
			batch[i] = prompt("one of many")
		}
		mustAppend(t, l, batch...)
	}
	before := x.howFar
	for range 100 {
		mustAppend(t, l, prompt("one"))
	}
	if n := x.howFar - before; before == 0 || n > 1 {
		t.Errorf("asked %d times for 1400 events, and %d times for 100 more", before, n)
	}
}

// Only an id from the caller can be in the log already: one that the ledger draws, as for
// most appends, is not looked up.
func TestDrawnIDsAreNotLookedUp(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid, x := contract.NewCID(), &memoryIndex{}
	l := openLog(t, b, ledger.Options{CID: cid, Index: x})
	first := prompt("first")
	first.ID = contract.NewID()
	mustAppend(t, l, first)
	x.cover(l, t, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, b, ledger.Options{CID: cid, Index: x})
	for range 3 {
		mustAppend(t, l, prompt("another"), prompt("and one more"))
	}
	if x.asked != 0 {
		t.Errorf("the index was asked %d times for ids that were drawn", x.asked)
	}
	if e := mustAppend(t, l, first)[0]; e.Sequence != 1 || x.asked != 1 {
		t.Errorf("the first event again is event %d, after %d questions", e.Sequence, x.asked)
	}
}
