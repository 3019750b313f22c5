package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// sleepFixture is a fleet whose computers have a log and a state, and nothing else.
type sleepFixture struct {
	*spendingFixture
	wakes atomic.Int64
	fails atomic.Pointer[contract.CID] // the one that does not wake
}

func newSleeper(t *testing.T) *sleepFixture {
	t.Helper()
	s := &sleepFixture{spendingFixture: newPurse(t)}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.Driver = asleep{}
	open := s.wake
	s.Fleet.wake = func(ctx context.Context, cid contract.CID, w computer.WakeOptions) (*computer.Computer, error) {
		s.wakes.Add(1)
		if f := s.fails.Load(); f != nil && *f == cid {
			return nil, fault.New("", fault.Unavailable, "Do this.", errors.New("the tree is odd"))
		}
		return open(ctx, cid, w)
	}
	return s
}

// made makes a computer that sleeps.
func (s *sleepFixture) made(name string) contract.CID {
	s.t.Helper()
	c := s.computer(name)
	if _, err := c.Log().Append(s.t.Context(), contract.Draft{Actor: contract.System(), Type: "computer.created", Data: contract.ComputerCreated{Name: name, Driver: "test"}}); err != nil {
		s.t.Fatal(err)
	}
	s.sleep(c, false)
	return c.CID()
}

func opened() contract.Draft {
	return contract.Draft{ID: contract.NewID(), Actor: contract.System(), Type: "box.opened", Data: contract.BoxOpened{Box: "x", Kind: contract.BoxScratch}}
}

// race makes callers ask two computers for something at once, while whichever of them is idle is
// put to sleep, and records what was acknowledged.
func (s *sleepFixture) race(cids []contract.CID, acked [][]string) {
	s.t.Helper()
	var asking sync.WaitGroup
	ask := func(i int, cid contract.CID) error {
		ctx, done := context.WithCancel(s.t.Context())
		defer done()
		c, err := s.Get(ctx, cid)
		if err != nil {
			return err
		}
		for range 3 {
			events, err := c.(*computer.Computer).Log().Append(ctx, opened())
			if err != nil {
				return err
			}
			acked[i] = append(acked[i], events[0].ID)
		}
		return nil
	}
	for i := range acked {
		asking.Go(func() {
			for n := range 4 {
				if err := ask(i, cids[(i+n)%2]); err != nil {
					s.t.Errorf("caller %d: %v", i, err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { asking.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return
		default:
			s.sleepIdle(s.t.Context(), 0)
			s.closeIdleLogs(0)
		}
	}
}

// TestASleepThatRacesWithRequestsLosesNothing: computers are put to sleep whenever they are idle,
// while many callers ask for them. Each caller gets an awake computer for as long as it needs it,
// and everything that was acknowledged is in the log.
func TestASleepThatRacesWithRequestsLosesNothing(t *testing.T) {
	s := newSleeper(t)
	cids := []contract.CID{s.made("A"), s.made("B")}
	acked := make([][]string, 8)
	for range 4 { // each round begins with both asleep
		s.race(cids, acked)
		s.laidAll(cids...)
	}
	if n := s.wakes.Load(); n < 8 {
		t.Errorf("they were woken %d times only", n)
	}
	have := map[string]bool{}
	for _, cid := range cids {
		ctx, done := context.WithCancel(t.Context())
		c, err := s.Get(ctx, cid)
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.(*computer.Computer).Log().Read(ctx, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			have[e.ID] = true
		}
		done()
	}
	for i, ids := range acked {
		for _, id := range ids {
			if !have[id] {
				t.Errorf("what caller %d was told is stored is not: %s", i, id)
			}
		}
	}
	s.laidAll(cids...)
}

// laidAll puts computers to sleep as soon as their callers are done.
func (s *sleepFixture) laidAll(cids ...contract.CID) {
	s.t.Helper()
	choirtest.Eventually(s.t, 30*time.Second, "computers that nobody uses fall asleep", func() bool {
		s.sleepIdle(s.t.Context(), 0)
		s.closing.Wait()
		for _, cid := range cids {
			if _, asleep, err := s.Asleep(s.t.Context(), cid); err != nil || !asleep {
				return false
			}
		}
		return true
	})
}

// TestWhoAsksTogetherWakesOnce shows that many concurrent requests for a sleeping computer wake it
// once, that if it does not wake all of them get the error, and that another computer is awake
// meanwhile.
func TestWhoAsksTogetherWakesOnce(t *testing.T) {
	s := newSleeper(t)
	a, b := s.made("A"), s.made("B")
	ask := func(cid contract.CID) []error {
		errs := make([]error, 16)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = s.Get(t.Context(), cid) })
		}
		all.Wait()
		return errs
	}
	if err := errors.Join(ask(a)...); err != nil || s.wakes.Load() != 1 {
		t.Errorf("woken %d times, %v", s.wakes.Load(), err)
	}
	s.fails.Store(&b)
	for _, err := range ask(b) {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(fmt.Sprint(err), "the tree is odd") || fault.HintOf(err) != "Do this." {
			t.Errorf("who waited hears %v", err)
		}
	}
	if s.wakes.Load() != 2 {
		t.Errorf("woken %d times", s.wakes.Load())
	}
	if err := errors.Join(ask(a)...); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// TestACallerKeepsItAwake shows that a computer does not fall asleep while a caller has it, however
// long that takes, and does so when the last one is done.
func TestACallerKeepsItAwake(t *testing.T) {
	s := newSleeper(t)
	cid := s.made("A")
	one, done := context.WithCancel(t.Context())
	two, doneToo := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{one, two} {
		if _, err := s.Get(ctx, cid); err != nil {
			t.Fatal(err)
		}
	}
	done()
	for range 50 {
		s.sleepIdle(t.Context(), 0)
	}
	if _, asleep, err := s.Asleep(t.Context(), cid); asleep || err != nil {
		t.Errorf("it fell asleep under its caller: %v", err)
	}
	doneToo()
	s.laidAll(cid)
}

// TestWhatHasHappenedIsReadAsleep shows that the log and the list of checkpoints of a sleeping
// computer are read without waking it, and that an event for the logs of all computers does not
// wake it either.
func TestWhatHasHappenedIsReadAsleep(t *testing.T) {
	s := newSleeper(t)
	cid := s.made("Quiet")
	h, err := s.History(t.Context(), cid)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.tell(t.Context(), contract.Person("ann"), "secret.set", contract.SecretSet{Name: "KEY"}); err != nil {
		t.Fatal(err)
	}
	page, err := h.Events(t.Context(), view.EventQuery{})
	if err != nil || len(page.Events) != 2 || page.Events[1].Type != "secret.set" {
		t.Errorf("its log: %+v, %v", page, err)
	}
	if _, _, err := h.(past).Checkpoints(t.Context(), 0, 10); err != nil {
		t.Errorf("its checkpoints: %v", err)
	}
	if n := s.wakes.Load(); n != 0 {
		t.Errorf("it was woken %d times for that", n)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != view.StateAsleep || list[0].Name != "Quiet" || list[0].Trouble != nil {
		t.Errorf("listed: %+v, %v", list, err)
	}
	// Once it is awake, the computer itself answers about its history.
	if _, err := s.Get(t.Context(), cid); err != nil {
		t.Fatal(err)
	}
	if page, err := h.Events(t.Context(), view.EventQuery{}); err != nil || len(page.Events) != 2 {
		t.Errorf("its log, awake: %+v, %v", page, err)
	}
}
