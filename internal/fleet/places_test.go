package fleet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
)

// asleep is a driver that only has a name.
type asleep struct{ sandbox.Driver }

func (asleep) Name() string { return "test" }

// TestWhoAsksWhileAComputerWakesWaits shows that callers who ask for a computer while it wakes
// wait, and then get it, or the reason why it did not wake, and never hear that there is none. The
// computer's own runs reach it meanwhile.
func TestWhoAsksWhileAComputerWakesWaits(t *testing.T) {
	cid := contract.NewCID()
	fl := &Fleet{Options: Options{Logger: slog.New(slog.DiscardHandler), Driver: asleep{}, Report: &recovery.Report{}}, ctx: t.Context(), places: map[contract.CID]*place{}}
	p := &place{cid: cid, name: "Choir", state: view.StateWaking, ended: make(chan struct{})}
	fl.places[cid], fl.order = p, []contract.CID{cid}

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := fl.Get(short, cid); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "is waking") {
		t.Errorf("while it wakes: %v", err)
	}
	if _, err := fl.get(cid); !fault.Is(err, fault.Unavailable) {
		t.Errorf("its runs, before its log is open: %v", err)
	}
	// Requests of a box through its tether end up here.
	for what, err := range map[string]error{
		"a model's call":   fl.meter(t.Context(), gateway.Scope{CID: cid}, contract.UsageMetered{}),
		"a connection":     fl.decide(t.Context(), egress.Scope{CID: cid}, true, contract.EgressDecided{}),
		"a tunnel's bytes": fl.meterEgress(t.Context(), egress.Scope{CID: cid}, egress.Traffic{}),
	} {
		if !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
			t.Errorf("%s, before its log is open: %v", what, err)
		}
	}
	c := new(computer.Computer)
	fl.opened(p, c)
	if got, err := fl.get(cid); err != nil || got != c {
		t.Errorf("its runs, once its log is open: %v, %v", got, err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := fl.Get(t.Context(), cid)
		got <- err
	}()
	fl.settle(p, nil, fault.New("", fault.Unavailable, "Do this.", errors.New("the tree is odd")))
	if err := <-got; err == nil || !strings.Contains(err.Error(), "the tree is odd") || fault.HintOf(err) != "Do this." {
		t.Errorf("who waited hears %v", err)
	}
	all, err := fl.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d computers are listed (%v)", len(all), err)
	}
	if list := all[0]; list.State != view.StateFailed || list.Trouble == nil || list.Trouble.Safe == "" || len(list.Trouble.Actions) < 2 {
		t.Errorf("it is listed as %+v", list)
	}
	if _, err := fl.Get(t.Context(), contract.NewCID()); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestAPanicWhileWakingIsThatComputersFailure shows that a panic during waking fails only the
// computer that woke.
func TestAPanicWhileWakingIsThatComputersFailure(t *testing.T) {
	fl := &Fleet{Options: Options{Logger: slog.New(slog.DiscardHandler)}, ctx: t.Context()}
	c, err := fl.wakeAlone(&place{cid: contract.NewCID()}, view.WakeRequest{}, nil) // the host lacks all its parts, so this panics
	if c != nil || !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "failed inside") {
		t.Errorf("got %v, %v", c, err)
	}
}

// TestDamageKeepsOnlyThoseAsleepThatItTouches shows that damage of one computer, or of its log,
// keeps only that one asleep, and that damage of something shared keeps all of them asleep.
func TestDamageKeepsOnlyThoseAsleepThatItTouches(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	refusal := func(shared, damage []bus.Damage) (error, error) {
		r := &recovery.Report{Shared: shared, Computers: map[contract.CID][]bus.Damage{a: damage, b: nil}}
		return recovery.Error(r.Of(a)), recovery.Error(r.Of(b))
	}
	for _, d := range []bus.Damage{{File: "computers/" + string(a) + "/workspace", What: "it is gone"}, {File: "nats", What: "the log ends at event 3; it had 4"}} {
		if ea, eb := refusal(nil, []bus.Damage{d}); !fault.Is(ea, fault.Damaged) || eb != nil {
			t.Errorf("%s: %v, %v", d, ea, eb)
		}
	}
	if ea, eb := refusal([]bus.Damage{{File: "keys/account.nk", What: "it is no key"}}, nil); !fault.Is(ea, fault.Damaged) || !fault.Is(eb, fault.Damaged) {
		t.Errorf("a key: %v, %v", ea, eb)
	}
	if ea, eb := refusal(nil, nil); ea != nil || eb != nil {
		t.Errorf("no damage: %v, %v", ea, eb)
	}
}

// TestAComputerFallsAlone shows that a computer whose own services keep failing is put to sleep and
// says why, that another one of the same fleet stays awake, and that the first can be opened again.
func TestAComputerFallsAlone(t *testing.T) {
	p := newPurse(t)
	p.ctx = t.Context()
	a, b := p.computer("A"), p.computer("B")
	p.partsFailed(a, errors.New("a broken service failed 10 times in a row: broken for good"))
	_, err := p.get(a.CID())
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "it was put to sleep") || !strings.Contains(err.Error(), "broken for good") {
		t.Errorf("it says %v", err)
	}
	p.closing.Wait()
	if _, err := a.Log().Append(t.Context(), contract.Draft{Actor: contract.System(), Type: "box.opened", Data: contract.BoxOpened{Box: "x", Kind: contract.BoxScratch}}); err == nil {
		t.Error("it is still open")
	}
	if c, err := p.get(b.CID()); err != nil || c != b {
		t.Errorf("the other one suffers: %v", err)
	}
	if _, err := b.Log().Append(t.Context(), contract.Draft{Actor: contract.System(), Type: "box.opened", Data: contract.BoxOpened{Box: "x", Kind: contract.BoxScratch}}); err != nil {
		t.Errorf("the other one's log: %v", err)
	}
	p.partsFailed(a, errors.New("again")) // the failure was reported twice
	if again := p.open(a.CID()); again.Log().Last() != a.Log().Last() {
		t.Errorf("opened again its log ends at %d", again.Log().Last())
	}
}
