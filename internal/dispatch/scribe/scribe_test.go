package scribe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/scribe"
)

// paper stores drafts, and can be held or broken.
type paper struct {
	mu     sync.Mutex
	calls  [][]string
	broken error
	begun  chan struct{} // each call says that it has begun, unless it is nil
	gate   chan struct{} // and takes one
}

func (p *paper) append(drafts ...contract.Draft) error {
	if p.begun != nil {
		p.begun <- struct{}{}
	}
	if p.gate != nil {
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return p.broken
	}
	var ids []string
	for _, d := range drafts {
		ids = append(ids, d.ID)
	}
	p.calls = append(p.calls, ids)
	return nil
}

// stored returns the calls so far, as "a b|c".
func (p *paper) stored() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []string
	for _, c := range p.calls {
		calls = append(calls, strings.Join(c, " "))
	}
	return strings.Join(calls, "|")
}

func said(id string) contract.Draft { return contract.Draft{ID: id} }

// TestWhatIsHeldGoesWithWhatFollows shows that what is held is stored in one call with what follows it,
// and that whoever waits is answered when both are stored.
func TestWhatIsHeldGoesWithWhatFollows(t *testing.T) {
	p := &paper{}
	s := scribe.New(p.append)
	if err := s.Hold(said("turn")); err != nil || p.stored() != "" {
		t.Fatalf("%v, stored %q", err, p.stored())
	}
	if err := s.Now(t.Context(), said("call")); err != nil || p.stored() != "turn call" {
		t.Fatalf("%v, stored %q", err, p.stored())
	}
	if err := s.Hold(said("held")); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil || p.stored() != "turn call|held" {
		t.Fatalf("at the end: %v, stored %q", err, p.stored())
	}
}

// TestNobodyWaitsForWhatIsStoredLater shows that Later returns before what it was given is stored, that what
// comes meanwhile shares the next call, and that Now waits for all of it.
func TestNobodyWaitsForWhatIsStoredLater(t *testing.T) {
	p := &paper{begun: make(chan struct{}), gate: make(chan struct{})}
	s := scribe.New(p.append)
	later := func(id string) {
		t.Helper()
		if err := s.Later(said(id)); err != nil {
			t.Fatal(err)
		}
	}
	later("a")
	<-p.begun
	later("b")
	later("c")
	answered := make(chan error, 1)
	go func() { answered <- s.Now(t.Context(), said("d")) }()
	p.gate <- struct{}{}
	<-p.begun
	if len(answered) > 0 {
		t.Fatalf("answered before it was stored: %v", <-answered)
	}
	p.gate <- struct{}{}
	for err, open := error(nil), true; open; {
		select {
		case <-p.begun: // d came behind the second call
			p.gate <- struct{}{}
		case err = <-answered:
			if open = false; err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := p.stored(); got != "a|b c d" && got != "a|b c|d" {
		t.Errorf("stored %q", got)
	}
}

// TestNothingIsStoredBehindWhatIsNot shows that after an event that could not be stored none is, that everybody is
// told, and that a panic counts as such an error.
func TestNothingIsStoredBehindWhatIsNot(t *testing.T) {
	full := errors.New("no room")
	p := &paper{broken: full}
	s := scribe.New(p.append)
	if err := s.Later(said("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); !errors.Is(err, full) {
		t.Errorf("told %v", err)
	}
	p.broken = nil
	for what, err := range map[string]error{"hold": s.Hold(said("b")), "later": s.Later(said("c")), "now": s.Now(t.Context(), said("d")), "wait": s.Wait()} {
		if !errors.Is(err, full) {
			t.Errorf("%s says %v", what, err)
		}
	}
	if p.stored() != "" {
		t.Errorf("stored %q", p.stored())
	}
	if err := scribe.New(func(...contract.Draft) error { panic("boom") }).Now(t.Context(), said("a")); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("of a panic: %v", err)
	}
}

// TestWhoeverHasGoneSaysNothing shows that an event of a caller who has gone is not stored.
func TestWhoeverHasGoneSaysNothing(t *testing.T) {
	p := &paper{}
	s := scribe.New(p.append)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Now(gone, said("a")); !errors.Is(err, context.Canceled) || p.stored() != "" {
		t.Errorf("%v, stored %q", err, p.stored())
	}
}

// TestWhatIsNotWaitedForIsBounded shows that a loop which says more than is stored has to wait.
func TestWhatIsNotWaitedForIsBounded(t *testing.T) {
	p := &paper{gate: make(chan struct{})}
	s := scribe.New(p.append)
	took := make(chan int, 1000)
	go func() {
		for i := range 1000 {
			if s.Later(said("x")) != nil || s.Hold(said("y")) != nil {
				return
			}
			took <- i
		}
		close(took)
	}()
	p.gate <- struct{}{}
	if n := len(took); n > 40 {
		t.Errorf("%d were taken while one was stored", n)
	}
	for open := true; open; {
		select {
		case p.gate <- struct{}{}:
		case _, open = <-took:
		}
	}
	close(p.gate)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestTheOrderIsTheCallers shows for any mix of calls that everything is stored once and in the order in which it
// was given, and that whoever waited finds it and all before it.
func TestTheOrderIsTheCallers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &paper{}
		s := scribe.New(p.append)
		var want []string
		for i, how := range rapid.SliceOfN(rapid.IntRange(0, 3), 0, 60).Draw(t, "how") {
			id := string(rune('A' + i))
			var err error
			switch how {
			case 0:
				err = s.Hold(said(id))
			case 1:
				err = s.Later(said(id))
			case 2:
				err = s.Now(t.Context(), said(id))
			case 3:
				err, id = s.Wait(), ""
			}
			if id != "" {
				want = append(want, id)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.FieldsFunc(p.stored(), func(r rune) bool { return r == ' ' || r == '|' }); how >= 2 && !slices.Equal(got, want) {
				t.Fatalf("stored %q, want %q", got, want)
			}
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := strings.FieldsFunc(p.stored(), func(r rune) bool { return r == ' ' || r == '|' }); !slices.Equal(got, want) {
			t.Fatalf("stored %q, want %q", got, want)
		}
	})
}

// TestWhatIsOwedIsStoredWhateverElseIsNot shows that what is owed is held as anything else, and stored alone, once, where that with which it was held
// could not be, and where nothing is stored any more.
func TestWhatIsOwedIsStoredWhateverElseIsNot(t *testing.T) {
	p, alone := &paper{}, &paper{}
	s := scribe.New(p.append)
	s.Alone = alone.append
	owe := func(id string) {
		t.Helper()
		if err := s.Owe(said(id)); err != nil {
			t.Fatal(err)
		}
	}
	owe("a")
	if err := s.Now(t.Context(), said("turn")); err != nil || p.stored() != "a turn" {
		t.Fatalf("%v, stored %q", err, p.stored())
	}
	p.broken = errors.New("no room")
	owe("b")
	if err := s.Hold(said("turn")); err != nil {
		t.Fatal(err)
	}
	owe("c")
	if err := s.Wait(); !errors.Is(err, p.broken) || alone.stored() != "b c" {
		t.Fatalf("%v, stored alone %q", err, alone.stored())
	}
	if owe("d"); alone.stored() != "b c|d" {
		t.Errorf("stored alone %q", alone.stored())
	}
	alone.broken = errors.New("none at all")
	if err := s.Owe(said("e")); !errors.Is(err, alone.broken) {
		t.Errorf("told %v", err)
	}
}
