package fleet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/view"
)

// spendingFixture is a fleet with logs, but no computers that run.
type spendingFixture struct {
	*Fleet
	t *testing.T
}

func newPurse(t *testing.T) *spendingFixture {
	t.Helper()
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	report, err := recovery.Inspect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir.Path("nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	blobs, err := disk.Open(dir.Path("blobs"), blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	room, err := datadir.OpenReserve(dir, 0, b.Health, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(room.Close)
	p := &spendingFixture{t: t, Fleet: &Fleet{Options: Options{Dir: dir, Bus: b, Blobs: blobs, Logger: slog.New(slog.DiscardHandler),
		Report: report}, machine: &computer.Machine{Reserve: room}}}
	p.reopen()
	return p
}

// reopen makes the fleet anew, as a restart does.
func (p *spendingFixture) reopen() {
	p.t.Helper()
	store, err := identity.Open(p.t.Context(), p.Dir.Path("control.sqlite"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = store.Close() })
	p.Fleet = &Fleet{Options: p.Options, ctx: p.t.Context(), places: p.places, order: p.order, counted: map[contract.CID]bool{}, machine: &computer.Machine{
		Dir: p.Dir, Bus: p.Bus, Blobs: p.Blobs, Logger: p.Logger, Reserve: p.machine.Reserve, Notices: func() []string { return nil },
	}}
	p.Fleet.wake = func(ctx context.Context, cid contract.CID, _ computer.WakeOptions) (*computer.Computer, error) {
		return p.machine.OpenState(ctx, cid)
	}
	p.Spending = store
	if p.places == nil {
		p.places = map[contract.CID]*place{}
	}
}

// computer makes a computer whose log is open.
func (p *spendingFixture) computer(name string) *computer.Computer {
	p.t.Helper()
	cid := contract.NewCID()
	if err := os.MkdirAll(p.Dir.Computer(cid), 0o700); err != nil {
		p.t.Fatal(err)
	}
	p.places[cid] = &place{cid: cid, name: name, state: view.StateAwake}
	p.order = append(p.order, cid)
	return p.open(cid)
}

func (p *spendingFixture) open(cid contract.CID) *computer.Computer {
	p.t.Helper()
	c, err := p.machine.OpenState(p.t.Context(), cid)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	p.places[cid].computer = c
	return c
}

// sleep closes a computer; counted says whether its spending was counted before.
func (p *spendingFixture) sleep(c *computer.Computer, counted bool) {
	p.t.Helper()
	if p.machine.Count = nil; counted {
		p.machine.Count = p.count
	}
	if err := c.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.places[c.CID()].computer, p.places[c.CID()].state = nil, view.StateAsleep
}

func metered(tokens int64) contract.UsageMetered {
	return contract.UsageMetered{Call: contract.NewID(), Role: "director", Provider: "anthropic", Model: "m", Outcome: "ok",
		Usage: contract.Usage{TokensOut: tokens, CostUSD: float64(tokens) / 1000}}
}

// log appends the usage of a call to the log only, as after a crash.
func (p *spendingFixture) log(c *computer.Computer, at time.Time, m contract.UsageMetered) {
	p.t.Helper()
	if _, err := c.Log().Append(p.t.Context(), contract.Draft{ID: contract.DeriveID(m.Call, "usage"), Actor: contract.System(), Type: "usage.metered", Time: at, Data: m}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *spendingFixture) want(what string, cid contract.CID, day string, tokens int64) {
	p.t.Helper()
	u, err := p.spentIn(p.t.Context(), cid, day)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	if u.TokensOut != tokens || int64(u.CostUSD*1000+0.5) != tokens {
		p.t.Errorf("%s: %+v; want %d tokens", what, u, tokens)
	}
}

// TestWhatIsSpentCountsWhoeverSleeps shows that the sums of the day and of the owner contain every
// call that is in a log, once, whatever happened to its computer and to the stored sum.
func TestWhatIsSpentCountsWhoeverSleeps(t *testing.T) {
	p := newPurse(t)
	now := time.Now()
	today, yesterday := now.UTC().Format(time.DateOnly), now.Add(-24*time.Hour).UTC().Format(time.DateOnly)
	a, b := p.computer("A"), p.computer("B")
	if err := p.meter(t.Context(), gateway.Scope{CID: a.CID()}, metered(1)); err != nil {
		t.Fatal(err)
	}
	p.log(a, now, metered(10)) // the process died before it was counted
	p.log(a, now.Add(-24*time.Hour), metered(100))
	p.sleep(a, false)
	p.log(b, now, metered(1000))
	all := func(what string) {
		t.Helper()
		p.want(what+", today", "", today, 1011)
		p.want(what+", yesterday", "", yesterday, 100)
		p.want(what+", ever", "", "", 1111)
		p.want(what+", of A", a.CID(), "", 111)
		p.want(what+", of B today", b.CID(), today, 1000)
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
	p.want("a test is no computer's", a.CID(), "", 111)

	delete(p.places, a.CID()) // it was deleted together with its log
	p.order = p.order[1:]
	p.want("A is deleted", "", today, 11_011)
}

// TestALogThatWasRecoveredIsCountedOnce shows that a log that differs from the one that was counted
// is read from its start, and that no call counts twice.
func TestALogThatWasRecoveredIsCountedOnce(t *testing.T) {
	p := newPurse(t)
	a := p.computer("A")
	p.log(a, time.Now(), metered(1))
	p.want("before", "", "", 1)
	p.log(a, time.Now(), metered(10))
	for what, at := range map[string]identity.Counted{
		"it ends earlier":       {Sequence: 99, Link: contract.FirstLink(a.CID())},
		"it holds other events": {Sequence: 2, Link: contract.FirstLink(a.CID())},
	} {
		if err := p.Spending.Count(t.Context(), a.CID(), at, nil); err != nil {
			t.Fatal(err)
		}
		p.reopen()
		p.want(what, "", "", 11)
	}
}

// TestUnknownSpendingIsNotNothing shows that a log that can't be read counts with its stored sum if
// that is certainly complete; otherwise the spending is unknown, and an error says so.
func TestUnknownSpendingIsNotNothing(t *testing.T) {
	p := newPurse(t)
	a := p.computer("Ann's")
	p.log(a, time.Now(), metered(5))
	p.sleep(a, true)
	damaged := &recovery.Report{Computers: map[contract.CID][]bus.Damage{a.CID(): {{File: "nats", What: "it is broken"}}}}
	whole := p.Report
	p.Report = damaged
	p.want("it was counted to its end", "", "", 5)

	p.Report = whole
	a = p.open(a.CID())
	p.log(a, time.Now(), metered(50))
	p.sleep(a, false)
	stateFile := p.Dir.Computer(a.CID(), "state.sqlite")
	if err := os.Remove(stateFile); err != nil {
		t.Fatal(err)
	}
	p.Report = damaged
	_, err := p.spentIn(t.Context(), "", "")
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "what Ann's ("+string(a.CID())+") has spent is not known") || !strings.Contains(err.Error(), "choir recover") {
		t.Errorf("a log that can't be read: %v", err)
	}
	a = p.open(a.CID())
	p.sleep(a, false)
	older, err := os.ReadFile(stateFile)
	if err != nil {
		t.Fatal(err)
	}
	p.want("its state reaches to the log's end", "", "", 55)
	p.Report = whole
	p.want("it can be read again", "", "", 55)
	a = p.open(a.CID())
	p.log(a, time.Now(), metered(500))
	p.sleep(a, false)
	if err := os.WriteFile(stateFile, older, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Report = damaged
	if _, err := p.spentIn(t.Context(), "", ""); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the log had 3") {
		t.Errorf("its state ends before the log did: %v", err)
	}
	p.Report = whole
	p.want("it can be read again after all", "", "", 555)
	if err := os.Remove(p.Dir.Computer(a.CID(), "log.head")); err != nil {
		t.Fatal(err)
	}
	p.Report = damaged
	if _, err := p.spentIn(t.Context(), "", ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody knows where its log ends: %v", err)
	}
}

// TestWhoSpendsWaitsForNoSum shows that a caller continues once the call's usage is in the log,
// even while nothing can be counted, and that the sum is updated later without being asked for.
func TestWhoSpendsWaitsForNoSum(t *testing.T) {
	p := newPurse(t)
	a := p.computer("A")
	p.machine.Count = p.count
	p.counting.Lock()
	metering := make(chan error, 1)
	go func() { metering <- p.meter(t.Context(), gateway.Scope{CID: a.CID()}, metered(1)) }()
	select {
	case err := <-metering:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("who spent waits for the sum")
	}
	p.counting.Unlock()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		u, err := p.Spending.Spent(t.Context(), a.CID(), "")
		if err != nil {
			t.Fatal(err)
		}
		if u.TokensOut == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v was counted", u)
		}
	}
}

// TestWhatACallCostIsLeftToItsLoop: where a loop stores it with what it says itself, it is not stored twice, an error of that is
// the call's, and it is counted all the same.
func TestWhatACallCostIsLeftToItsLoop(t *testing.T) {
	p := newPurse(t)
	a := p.computer("A")
	today := time.Now().UTC().Format(time.DateOnly)
	var said []contract.Draft
	bad := errors.New("it says nothing more")
	scope := gateway.Scope{CID: a.CID(), Run: contract.NewID(), Hold: func(d contract.Draft) error {
		if said = append(said, d); len(said) > 1 {
			return bad
		}
		_, err := a.Log().Append(t.Context(), d)
		return err
	}}
	if err := p.meter(t.Context(), scope, metered(5)); err != nil {
		t.Fatal(err)
	}
	if err := p.meter(t.Context(), scope, metered(7)); !errors.Is(err, bad) {
		t.Errorf("what could not be said: %v", err)
	}
	if len(said) != 2 || said[0].Type != "usage.metered" || said[0].Run != scope.Run {
		t.Errorf("said were %+v", said)
	}
	p.want("today", "", today, 5)
}
