package breaker_test

import (
	"testing"
	"time"

	"choir.dev/choiros/internal/gateway/breaker"
)

type clock time.Duration

func set(c *clock) *breaker.Set {
	return breaker.New(breaker.Options{Now: func() time.Duration { return time.Duration(*c) }, After: 3, First: 4 * time.Second, Most: time.Minute})
}

func fail(t *testing.T, b *breaker.Breaker, keep time.Duration) {
	t.Helper()
	p, _ := b.Take()
	if p == nil {
		t.Fatal("it is open")
	}
	p.Failed("unavailable", keep)
}

func TestItOpensAfterFailuresInARow(t *testing.T) {
	var now clock
	b := set(&now).Of("a")
	fail(t, b, 0)
	fail(t, b, 0)
	p, _ := b.Take()
	p.Answered()
	fail(t, b, 0)
	fail(t, b, 0)
	if p, _ := b.Take(); p == nil {
		t.Fatal("two failures behind an answer opened it")
	}
	fail(t, b, 0)
	p, again := b.Take()
	if p != nil || again <= 0 || again > 4*time.Second {
		t.Fatalf("after three failures: %v, again at %v", p, again)
	}
	if since, code, failing := b.Failing(); !failing || code != "unavailable" || since != 0 {
		t.Errorf("%v %q %v", since, code, failing)
	}
}

// TestOneCallProbes shows that of all who wait one call finds out whether the service is back, that
// each failure keeps the others away for longer, and that its answer lets everybody on.
func TestOneCallProbes(t *testing.T) {
	var now clock
	s := set(&now)
	b := s.Of("a")
	for range 3 {
		fail(t, b, 0)
	}
	_, at := b.Take()
	for try := range 6 {
		now = clock(at)
		probe, _ := b.Take()
		if probe == nil {
			t.Fatalf("nobody may probe at %v", at)
		}
		if second, _ := b.Take(); second != nil {
			t.Fatal("two calls probe at once")
		}
		changed := s.Changed()
		probe.Failed("timeout", 0)
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		was := at
		_, at = b.Take()
		if gap := at - was; gap > time.Minute || try < 3 && gap < (3*time.Second)<<(try+1) {
			t.Errorf("try %d: open for %v", try, gap)
		}
	}
	now = clock(at)
	probe, _ := b.Take()
	changed := s.Changed()
	probe.Left()
	<-changed
	if probe, _ = b.Take(); probe == nil {
		t.Fatal("a probe that was given up keeps others from probing")
	}
	changed = s.Changed()
	probe.Answered()
	<-changed
	for range 2 {
		if p, _ := b.Take(); p == nil {
			t.Fatal("it is open although the service answered")
		}
	}
}

func TestItIsOpenUntilTheServiceSaysSo(t *testing.T) {
	var now clock
	s := set(&now)
	fail(t, s.Of("a"), 10*time.Minute)
	now = clock(9 * time.Minute)
	if p, again := s.Of("a").Take(); p != nil || again != 10*time.Minute {
		t.Errorf("%v, again at %v", p, again)
	}
	if p, _ := s.Of("b").Take(); p == nil {
		t.Error("another service is kept from being called")
	}
	now = clock(10 * time.Minute)
	if p, _ := s.Of("a").Take(); p == nil {
		t.Error("it is open for longer than was asked for")
	}
}
