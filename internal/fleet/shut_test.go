package fleet

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// open reports whether the server has a log open.
func (s *sleepFixture) open(cid contract.CID) bool {
	s.t.Helper()
	open, err := s.Bus.Serves(s.t.Context(), cid)
	if err != nil {
		s.t.Fatal(err)
	}
	return open
}

// damage changes a byte of an event in a log's file.
func (s *sleepFixture) damage(cid contract.CID) {
	s.t.Helper()
	found, err := filepath.Glob(s.Dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(cid), "msgs", "1.blk"))
	if err != nil || len(found) != 1 {
		s.t.Fatal(found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		s.t.Fatal(err)
	}
	at := bytes.Index(b, []byte(`"computer.created"`))
	if at < 0 {
		s.t.Fatal("the event is not found in its block")
	}
	b[at+2] ^= 1
	if err := os.WriteFile(found[0], b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestAHundredSleepersCostNoGoroutine shows that with a hundred sleeping computers this process,
// including the NATS server in it, has as many goroutines as with two, and needs less than a
// megabyte more for each, and that any of them wakes.
func TestAHundredSleepersCostNoGoroutine(t *testing.T) {
	s := newSleeper(t)
	cids := []contract.CID{s.made("A"), s.made("B")}
	s.laidAll(cids...)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // to collect what the first collection finalized
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	s.closeIdleLogs(0)
	least := runtime.NumGoroutine()
	choirtest.Eventually(t, 30*time.Second, "what closed two is done", func() bool {
		now := runtime.NumGoroutine()
		settled := now >= least
		least = min(least, now)
		return settled
	})
	before := heap()
	for range 98 {
		cids = append(cids, s.made("More"))
	}
	s.laidAll(cids...)
	s.closeIdleLogs(0)
	choirtest.Eventually(t, 30*time.Second, "a hundred have the goroutines of two", func() bool { return runtime.NumGoroutine() <= least })
	if each := (int64(heap()) - int64(before)) / 98; each > 1<<20 {
		t.Errorf("each takes %d bytes", each)
	} else {
		t.Logf("each takes %d bytes", each)
	}
	if s.open(cids[50]) {
		t.Error("the log of one that sleeps is open")
	}
	start := time.Now()
	if _, err := s.Get(t.Context(), cids[50]); err != nil {
		t.Error(err)
	}
	t.Logf("its log and state are awake after %v", time.Since(start))
}

// TestWhatIsDamagedAsleepIsSeenBeforeItIsOpened shows that the log of a sleeping computer is read
// and checked before the server opens it, whether the computer wakes or only its log is read,
// because the server would truncate a damaged log. Only that computer then counts as damaged.
func TestWhatIsDamagedAsleepIsSeenBeforeItIsOpened(t *testing.T) {
	for name, ask := range map[string]func(*sleepFixture, contract.CID) error{
		"woken": func(s *sleepFixture, cid contract.CID) error { _, err := s.Get(s.t.Context(), cid); return err },
		"read": func(s *sleepFixture, cid contract.CID) error {
			h, err := s.History(s.t.Context(), cid)
			if err != nil {
				return err
			}
			_, err = h.Events(s.t.Context(), view.EventQuery{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper(t)
			a, b := s.made("A"), s.made("B")
			s.laidAll(a, b)
			s.closeIdleLogs(0)
			s.damage(a)
			if err := ask(s, a); !fault.Is(err, fault.Damaged) {
				t.Errorf("it is told as %v", err)
			}
			info, err := s.listed(t.Context(), a)
			if err != nil || info.State != view.StateDamaged || info.Trouble == nil {
				t.Errorf("it is listed as %+v, %v", info, err)
			}
			if _, err := s.Get(t.Context(), b); err != nil {
				t.Errorf("the other one: %v", err)
			}
			if s.open(a) {
				t.Error("the server opened it")
			}
		})
	}
}

// TestALogThatWasReadAsleepIsClosedAgain shows that a log that is read while its computer sleeps
// stays open for further readers, and is closed when there were none for a while.
func TestALogThatWasReadAsleepIsClosedAgain(t *testing.T) {
	s := newSleeper(t)
	cid := s.made("A")
	s.laidAll(cid)
	s.closeIdleLogs(0)
	if err := s.tell(t.Context(), contract.Person("ann"), "secret.set", contract.SecretSet{Name: "KEY"}); err != nil {
		t.Fatal(err)
	}
	s.closeIdleLogs(time.Hour)
	if !s.open(cid) {
		t.Error("it was closed at once")
	}
	s.closeIdleLogs(0)
	if s.open(cid) {
		t.Error("it stays open")
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	c, err := s.Get(ctx, cid)
	if err != nil {
		t.Fatal(err)
	}
	if events, err := c.(*computer.Computer).Log().Read(ctx, 0, 0); err != nil || len(events) != 2 {
		t.Errorf("it has %d events, %v", len(events), err)
	}
}
