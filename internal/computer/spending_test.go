package computer

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// purse is a host with logs, but no computers that run.
type purse struct {
	*Host
	t *testing.T
}

func newPurse(t *testing.T) *purse {
	t.Helper()
	b, blobs := newBus(t)
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	room, err := datadir.OpenReserve(dir, 0, b.Health, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(room.Close)
	p := &purse{t: t, Host: &Host{Options: Options{Dir: dir, Bus: b, Blobs: blobs, Logger: slog.New(slog.DiscardHandler),
		Report: &recovery.Report{Computers: map[contract.CID][]bus.Damage{}}}, reserve: room}}
	p.reopen()
	return p
}

// reopen is what a restart leaves of the host.
func (p *purse) reopen() {
	p.t.Helper()
	store, err := identity.Open(p.t.Context(), p.Dir.Path("control.sqlite"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = store.Close() })
	p.Host = &Host{Options: p.Options, reserve: p.reserve, places: p.places, order: p.order, counted: map[contract.CID]bool{}}
	p.Spending = store
	if p.places == nil {
		p.places = map[contract.CID]*place{}
	}
}

// computer makes one whose log is open.
func (p *purse) computer(name string) *Computer {
	p.t.Helper()
	c := &Computer{host: p.Host, cid: contract.NewCID(), logger: p.Logger}
	if err := os.MkdirAll(p.Dir.Computer(c.cid), 0o700); err != nil {
		p.t.Fatal(err)
	}
	p.places[c.cid] = &place{cid: c.cid, name: name, state: view.StateAwake, c: c}
	p.order = append(p.order, c.cid)
	p.open(c)
	return c
}

func (p *purse) open(c *Computer) {
	p.t.Helper()
	log, err := ledger.Open(p.t.Context(), p.Bus.JetStream(), ledger.Options{CID: c.cid, Blobs: p.Blobs, Head: p.Dir.Computer(c.cid, "log.head")})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = log.Close() })
	c.log = log
}

// sleep closes a computer's log; counted says whether there was time to count.
func (p *purse) sleep(c *Computer, counted bool) {
	p.t.Helper()
	if counted {
		c.countAsleep()
	}
	if err := c.log.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.places[c.cid].c, p.places[c.cid].state = nil, view.StateAsleep
}

func metered(tokens int64) contract.UsageMetered {
	return contract.UsageMetered{Call: contract.NewID(), Role: "director", Provider: "anthropic", Model: "m", Outcome: "ok",
		Usage: contract.Usage{TokensOut: tokens, CostUSD: float64(tokens) / 1000}}
}

// log appends what a call consumed to the log alone, as a crash would leave it.
func (p *purse) log(c *Computer, at time.Time, m contract.UsageMetered) {
	p.t.Helper()
	if _, err := c.log.Append(p.t.Context(), contract.Draft{ID: contract.DeriveID(m.Call, "usage"), Role: contract.RoleSystem, Type: "usage.metered", Time: at, Data: m}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *purse) want(what string, cid contract.CID, day string, tokens int64) {
	p.t.Helper()
	u, err := p.spentIn(p.t.Context(), cid, day)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	if u.TokensOut != tokens || int64(u.CostUSD*1000+0.5) != tokens {
		p.t.Errorf("%s: %+v; want %d tokens", what, u, tokens)
	}
}

// TestWhatIsSpentCountsWhoeverSleeps: the day's and the owner's sum hold every
// call that a log holds, once, whatever became of its computer and of the sum.
func TestWhatIsSpentCountsWhoeverSleeps(t *testing.T) {
	p := newPurse(t)
	now := time.Now()
	today, yesterday := now.UTC().Format(time.DateOnly), now.Add(-24*time.Hour).UTC().Format(time.DateOnly)
	a, b := p.computer("A"), p.computer("B")
	if err := p.meter(t.Context(), gateway.Scope{CID: a.cid}, metered(1)); err != nil {
		t.Fatal(err)
	}
	p.log(a, now, metered(10)) // nobody came to count it
	p.log(a, now.Add(-24*time.Hour), metered(100))
	p.sleep(a, false)
	p.log(b, now, metered(1000))
	all := func(what string) {
		t.Helper()
		p.want(what+", today", "", today, 1011)
		p.want(what+", yesterday", "", yesterday, 100)
		p.want(what+", ever", "", "", 1111)
		p.want(what+", of A", a.cid, "", 111)
		p.want(what+", of B today", b.cid, today, 1000)
	}
	all("A is asleep")
	all("asked again")
	p.reopen()
	all("after a restart")
	if err := errors.Join(os.Remove(p.Dir.Path("control.sqlite")), os.RemoveAll(p.Dir.Path("control.sqlite-wal")), os.RemoveAll(p.Dir.Path("control.sqlite-shm"))); err != nil {
		t.Fatal(err)
	}
	p.reopen()
	all("counted anew from the logs")

	if err := p.meter(t.Context(), gateway.Scope{Role: "test"}, metered(10_000)); err != nil {
		t.Fatal(err)
	}
	p.reopen()
	p.want("a test of a model, after a restart", "", today, 11_011)
	p.want("a test is no computer's", a.cid, "", 111)

	delete(p.places, a.cid) // deleted, with its log
	p.order = p.order[1:]
	p.want("A is deleted", "", today, 11_011)
}

// TestALogThatWasRecoveredIsCountedOnce: another log than the one that was
// counted is read from its start, and what is known of it stays counted once.
func TestALogThatWasRecoveredIsCountedOnce(t *testing.T) {
	p := newPurse(t)
	a := p.computer("A")
	p.log(a, time.Now(), metered(1))
	p.want("before", "", "", 1)
	p.log(a, time.Now(), metered(10))
	for what, at := range map[string]identity.Counted{
		"it ends earlier":       {Sequence: 99, Link: contract.FirstLink(a.cid)},
		"it holds other events": {Sequence: 2, Link: contract.FirstLink(a.cid)},
	} {
		if err := p.Spending.Count(t.Context(), a.cid, at, nil); err != nil {
			t.Fatal(err)
		}
		p.reopen()
		p.want(what, "", "", 11)
	}
}

// TestUnknownSpendingIsNotNothing: a log that can't be read counts with what was
// counted of it, if that is certainly all; otherwise nothing is known, and said.
func TestUnknownSpendingIsNotNothing(t *testing.T) {
	p := newPurse(t)
	a := p.computer("Ann's")
	p.log(a, time.Now(), metered(5))
	p.sleep(a, true)
	damaged := &recovery.Report{Computers: map[contract.CID][]bus.Damage{a.cid: {{File: "nats", What: "it is broken"}}}}
	whole := p.Report
	p.Report = damaged
	p.want("it was counted to its end", "", "", 5)

	p.Report = whole
	p.open(a)
	p.log(a, time.Now(), metered(50))
	p.sleep(a, false)
	p.Report = damaged
	_, err := p.spentIn(t.Context(), "", "")
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "what Ann's ("+string(a.cid)+") has spent is not known") || !strings.Contains(err.Error(), "choir recover") {
		t.Errorf("a log that can't be read: %v", err)
	}
	db, err := state.Open(t.Context(), p.Dir.Computer(a.cid, "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	p.open(a)
	if err := errors.Join(db.Recover(t.Context(), a.log), db.Close()); err != nil {
		t.Fatal(err)
	}
	p.sleep(a, false)
	p.want("its state reaches to the log's end", "", "", 55)
	p.Report = whole
	p.want("it can be read again", "", "", 55)
	p.open(a)
	p.log(a, time.Now(), metered(500))
	p.sleep(a, false)
	p.Report = damaged
	if _, err := p.spentIn(t.Context(), "", ""); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the log had 3") {
		t.Errorf("its state ends before the log did: %v", err)
	}
	p.Report = whole
	p.want("it can be read again after all", "", "", 555)
	if err := os.Remove(p.Dir.Computer(a.cid, "log.head")); err != nil {
		t.Fatal(err)
	}
	p.Report = damaged
	if _, err := p.spentIn(t.Context(), "", ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody knows where its log ends: %v", err)
	}
}
