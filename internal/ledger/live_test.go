package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// listen subscribes to a computer's live events.
func listen(t *testing.T, b *bus.Bus, cid contract.CID) <-chan *nats.Msg {
	t.Helper()
	live := make(chan *nats.Msg, 8192)
	if _, err := b.Conn().ChanSubscribe(contract.SubjectLive(cid), live); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	return live
}

func hear(t *testing.T, live <-chan *nats.Msg) contract.Event {
	t.Helper()
	select {
	case m := <-live:
		e, err := contract.UnmarshalEvent(m.Data)
		if err != nil || m.Subject != contract.SubjectLiveEvent(e) {
			t.Fatalf("%s: %v", m.Subject, err)
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("nothing was said")
	}
	return contract.Event{}
}

// No event is published before the log has it: it is on disk, and a subscriber who then
// reads the log finds it. Each event is published once, as stored, in the log's order.
func TestWhatIsSaidIsAcknowledged(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	live := listen(t, b, cid)
	held := false
	l := openLog(t, b, ledger.Options{CID: cid}.AtStep(func(point string) {
		if point != "acknowledged" || !held {
			return
		}
		held = false
		if err := b.Conn().Flush(); err != nil || len(live) > 0 {
			t.Errorf("%d events were said before the log had them (%v)", len(live), err)
		}
	}))
	mustAppend(t, l, prompt("one"))
	if e := hear(t, live); e.Sequence != 1 {
		t.Errorf("heard event %d", e.Sequence)
	}
	held = true
	mustAppend(t, l, prompt("two"))
	if e := hear(t, live); held || e.Sequence != 2 {
		t.Errorf("heard event %d; nothing was acknowledged: %v", e.Sequence, held)
	}
	var writers sync.WaitGroup
	defer writers.Wait()
	const callers, each = 8, 40
	for w := range callers {
		writers.Go(func() {
			for n := range each {
				drafts := []contract.Draft{prompt(fmt.Sprint(w, n))}
				if n%10 == 0 {
					drafts = append(drafts, prompt("another"))
				}
				if _, err := l.Append(t.Context(), drafts...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for want := uint64(3); want < 3+callers*(each+each/10); want++ {
		e := hear(t, live)
		if last := l.Last(); e.Sequence != want || last < want {
			t.Fatalf("heard event %d, want %d; the log ends at %d", e.Sequence, want, last)
		}
		if page, err := l.Read(t.Context(), want-1, 1); err != nil || !slices.Equal(page[0].Data, e.Data) || page[0].Prev != e.Prev {
			t.Fatalf("event %d is another one in the log: %v", want, err)
		}
	}
}

// Whoever subscribes and then asks how far the log goes receives every later event.
func TestWhoBeginsToListenMissesNothing(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	over, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		for over.Err() == nil {
			if _, err := l.Append(t.Context(), prompt("another")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		live := make(chan *nats.Msg, 8192)
		sub, err := b.Conn().ChanSubscribe(contract.SubjectLive(cid), live)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		last := l.Last()
		// Some older events, which the log already returns, may also be received: those
		// that were under way to the previous subscriber.
		e := hear(t, live)
		for e.Sequence <= last {
			e = hear(t, live)
		}
		for want := last + 1; want <= last+3; want++ {
			if e.Sequence != want {
				t.Fatalf("the log ended at event %d; event %d was heard, want %d", last, e.Sequence, want)
			}
			e = hear(t, live)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// An event whose append had an unknown outcome is published once the outcome is known.
func TestWhatWasInDoubtIsSaid(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	live := listen(t, b, cid)
	var mu sync.Mutex
	leave := func() {}
	l := openLog(t, b, ledger.Options{CID: cid}.AtStep(func(point string) {
		if point == "sent" {
			mu.Lock()
			defer mu.Unlock()
			leave()
		}
	}))
	left := 0
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		mu.Lock()
		leave = cancel
		mu.Unlock()
		if _, err := l.Append(ctx, prompt("given up")); err != nil {
			left++
		}
		cancel()
	}
	if left == 0 {
		t.Error("every append was answered before its caller had left")
	}
	mu.Lock()
	leave = func() {}
	mu.Unlock()
	last := mustAppend(t, l, prompt("whole"))[0].Sequence
	for want := uint64(1); want <= last; want++ {
		if e := hear(t, live); e.Sequence != want {
			t.Fatalf("heard event %d, want %d", e.Sequence, want)
		}
	}
}

// audience is a Live that has subscribers or not, and blocks as long as it is held.
type audience struct {
	mu     sync.Mutex
	absent bool
	asked  func() // whether it listens; nil: nothing happens
	heard  []uint64
	gate   chan struct{} // closed: nothing holds it
	inside chan struct{} // told before and after something is said
}

func (a *audience) Subscribed(string) bool {
	if a.asked != nil {
		a.asked()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.absent
}

func (a *audience) Publish(_ string, data []byte) error {
	tell := func() {
		select {
		case a.inside <- struct{}{}:
		default:
		}
	}
	defer tell()
	tell()
	<-a.gate
	e, err := contract.UnmarshalEvent(data)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, e.Sequence)
	return err
}

func (a *audience) log(t *testing.T, b *bus.Bus) *ledger.Log {
	t.Helper()
	l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: contract.NewCID(), Live: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// If subscribers are slow, no append waits for them, and they receive everything in the
// end, including events that are no longer in memory. A log that is closed publishes what
// it has first.
func TestWhoAppendsDoesNotWaitForWhoListens(t *testing.T) {
	b := openBus(t, t.TempDir())
	a := &audience{gate: make(chan struct{}), inside: make(chan struct{}, 1)}
	l := a.log(t, b)
	const n = 700
	mustAppend(t, l, prompt("first"))
	<-a.inside
	for i := 1; i < n; i += 50 {
		drafts := make([]contract.Draft, min(50, n-i))
		for j := range drafts {
			drafts[j] = prompt("another")
		}
		mustAppend(t, l, drafts...)
	}
	close(a.gate)
	for last := 0; last < n; { // what is far behind is read while the log is open
		a.mu.Lock()
		last = len(a.heard)
		a.mu.Unlock()
		if last < n {
			<-a.inside
		}
	}
	mustAppend(t, l, prompt("the last"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(a.heard) != n+1 {
		t.Errorf("%d events were said of %d", len(a.heard), n+1)
	}
	for i, seq := range a.heard {
		if seq != uint64(i+1) {
			t.Fatalf("event %d was said where %d belongs", seq, i+1)
		}
	}
}

// Without subscribers nothing is published, and what comes after a subscription is. Whether
// there are subscribers is checked after the log has the event, so later subscribers find
// it in the log.
func TestNothingIsSaidToNobody(t *testing.T) {
	b := openBus(t, t.TempDir())
	a := &audience{gate: make(chan struct{}), inside: make(chan struct{}, 1), absent: true}
	close(a.gate)
	l := a.log(t, b)
	a.asked = func() {
		if l.Last() < 2 {
			t.Errorf("the log ends at event %d when it is asked who listens", l.Last())
		}
	}
	mustAppend(t, l, prompt("one"), prompt("two"))
	a.mu.Lock()
	a.absent = false
	a.mu.Unlock()
	mustAppend(t, l, prompt("three"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.heard, []uint64{3}) {
		t.Errorf("heard %v", a.heard)
	}
}
