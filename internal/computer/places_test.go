package computer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
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

// Who asks for a computer while it wakes waits, and then gets it, or why not;
// its own runs reach it meanwhile. Nobody is told that there is none.
func TestWhoAsksWhileAComputerWakesWaits(t *testing.T) {
	cid := contract.NewCID()
	h := &Host{Options: Options{Logger: slog.New(slog.DiscardHandler), Driver: asleep{}, Report: &recovery.Report{}}, ctx: t.Context(), places: map[contract.CID]*place{}}
	p := &place{cid: cid, name: "Choir", state: view.StateWaking, ended: make(chan struct{})}
	h.places[cid], h.order = p, []contract.CID{cid}

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := h.Get(short, cid); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "is waking") {
		t.Errorf("while it wakes: %v", err)
	}
	if _, err := h.get(cid); !fault.Is(err, fault.Unavailable) {
		t.Errorf("its runs, before its log is open: %v", err)
	}
	// What a box asks through its tether ends up at these.
	for what, err := range map[string]error{
		"a model's call":   h.meter(t.Context(), gateway.Scope{CID: cid}, contract.UsageMetered{}),
		"a connection":     h.decide(t.Context(), egress.Scope{CID: cid}, true, contract.EgressDecided{}),
		"a tunnel's bytes": h.meterEgress(t.Context(), egress.Scope{CID: cid}, egress.Traffic{}),
	} {
		if !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
			t.Errorf("%s, before its log is open: %v", what, err)
		}
	}
	c := &Computer{cid: cid}
	h.opened(p, c)
	if got, err := h.get(cid); err != nil || got != c {
		t.Errorf("its runs, once its log is open: %v, %v", got, err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := h.Get(t.Context(), cid)
		got <- err
	}()
	h.settle(p, nil, fault.New("", fault.Unavailable, "Do this.", errors.New("the tree is odd")))
	if err := <-got; err == nil || !strings.Contains(err.Error(), "the tree is odd") || fault.HintOf(err) != "Do this." {
		t.Errorf("who waited hears %v", err)
	}
	all, err := h.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d computers are listed (%v)", len(all), err)
	}
	if list := all[0]; list.State != view.StateFailed || list.Trouble == nil || list.Trouble.Safe == "" || len(list.Trouble.Actions) < 2 {
		t.Errorf("it is listed as %+v", list)
	}
	if _, err := h.Get(t.Context(), contract.NewCID()); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A panic on the way is the failure of the computer that woke.
func TestAPanicWhileWakingIsThatComputersFailure(t *testing.T) {
	h := &Host{Options: Options{Logger: slog.New(slog.DiscardHandler)}, ctx: t.Context()}
	c, err := h.wakeAlone(&place{cid: contract.NewCID()}, view.WakeRequest{}, nil) // a host without any of its parts
	if c != nil || !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "failed inside") {
		t.Errorf("got %v, %v", c, err)
	}
}

// One computer's damage keeps that one asleep, its log's too; what all share keeps
// all of them.
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

// Only what is wrong with the history itself is a reason to give it up; what was
// not looked at, for want of open files say, is no damage at all.
func TestOnlyAHurtHistoryIsGivenUp(t *testing.T) {
	cid := contract.NewCID()
	damaged := func(err error) error { return fault.Wrap("wake", fault.New("", fault.Damaged, "Recover it.", err)) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"an event that is missing": {damaged(errors.New("event 5 is missing")), false},
		"the history":              {errors.Join(damaged(ofHistory{errors.New("it ends at nothing")}), errors.New("it did not close")), true},
		"nothing":                  {nil, false},
	} {
		if got := historyOf(cid, c.err); (len(got) == 1) != c.want {
			t.Errorf("%s: the histories %v are given up", name, got)
		}
	}
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() // only gives the lock back
	c := &Computer{host: &Host{Options: Options{Dir: dir}}, cid: cid, logger: slog.New(slog.DiscardHandler)}
	if err := os.MkdirAll(c.path("workspace", ".git", "refs", "heads"), 0o700); err != nil {
		t.Fatal(err)
	}
	var old, few unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few = old
	few.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = c.branch()
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "ulimit") {
		t.Errorf("with no files to open the branch is %v (%s)", err, fault.CodeOf(err))
	}
}

// 49: a history that ends before, or elsewhere than, the log knows is damage, and
// nothing is written to it.
func TestAttack49_AnotherHistoryIsNotTakenForWhole(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("two\n")
	d.checkpoint(contract.CheckpointManual)
	d.fatal(d.caughtUp(t.Context()))
	branch := func(c *Computer) string { return c.path("workspace", ".git", "refs", "heads", "main") }
	for name, damage := range map[string]func(c *Computer) error{
		"an older history":               func(c *Computer) error { return os.WriteFile(branch(c), []byte(first+"\n"), 0o644) },
		"a history without its branch":   func(c *Computer) error { return os.Remove(branch(c)) },
		"a branch that names no commit":  func(c *Computer) error { return os.WriteFile(branch(c), nil, 0o644) },
		"another computer's history":     func(c *Computer) error { return os.WriteFile(branch(c), []byte(strings.Repeat("5", 40)+"\n"), 0o644) },
		"a workspace without a history":  func(c *Computer) error { return os.RemoveAll(c.path("workspace", ".git")) },
		"a computer without a workspace": func(c *Computer) error { return os.RemoveAll(c.path("workspace")) },
		"":                               func(*Computer) error { return nil },
	} {
		dir, err := datadir.Open(t.TempDir())
		d.fatal(err)
		c := &Computer{host: &Host{Options: Options{Dir: dir}}, cid: d.cid, state: d.state, log: d.log, logger: d.logger}
		d.fatal(errors.Join(os.CopyFS(c.path("workspace"), os.DirFS(filepath.Join(d.dir, "workspace"))), damage(c)))
		err = c.compareHistory(t.Context())
		switch {
		case name == "" && err != nil:
			t.Errorf("the history as it is: %v", err)
		case name != "" && err == nil:
			t.Errorf("%s was taken for whole", name)
		case name != "" && (!fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "workspace")):
			t.Errorf("%s: %v", name, err)
		}
		d.fatal(dir.Close())
	}
}
