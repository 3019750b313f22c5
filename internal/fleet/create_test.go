package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
)

// broken is a driver that opens no computer.
type broken struct{ sandbox.Driver }

func (broken) Name() string { return "broken" }

// TestWhatCouldNotBeMadeLeavesNothing shows that a computer that could not be made is in no list
// and leaves neither a directory nor a log. One whose log has begun is listed and says why it does
// not wake.
func TestWhatCouldNotBeMadeLeavesNothing(t *testing.T) {
	p := newPurse(t)
	p.ctx = t.Context()
	cid := contract.NewCID()
	if err := os.WriteFile(p.Dir.Computer(cid), nil, 0o600); err != nil { // a file in the place of its directory
		t.Fatal(err)
	}
	p.Driver = broken{}
	if _, err := p.Create(t.Context(), cid, "New"); err == nil {
		t.Errorf("made where nothing can be: %v", err)
	}
	if list, err := p.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if _, err := os.Lstat(p.Dir.Computer(cid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if there, err := p.Bus.Serves(t.Context(), cid); err != nil || there {
		t.Errorf("its log is there: %v, %v", there, err)
	}

	begun := p.computer("Begun")
	if _, err := begun.Log().Append(t.Context(), contract.Draft{Actor: contract.System(), Type: "computer.created", Data: contract.ComputerCreated{Name: "Begun", Driver: "broken"}}); err != nil {
		t.Fatal(err)
	}
	if err := begun.Close(); err != nil {
		t.Fatal(err)
	}
	at := p.places[begun.CID()]
	at.computer, at.state, at.err = nil, view.StateFailed, errors.New("no keeper")
	if err := p.unmade(t.Context(), at); err != nil {
		t.Errorf("one that has begun is forgotten: %v", err)
	}
	if there, err := p.Bus.Serves(t.Context(), begun.CID()); err != nil || !there || p.places[begun.CID()] == nil {
		t.Errorf("its log is gone: %v, %v", there, err)
	}
}

// TestWhatIsMadeAgainIsNotRemoved shows that when a computer could not be made and is asked for
// again, the new one stays, however long it takes to remove what the first try left.
func TestWhatIsMadeAgainIsNotRemoved(t *testing.T) {
	s := newSleeper(t)
	cid := contract.NewCID()
	open := s.Fleet.wake
	s.Fleet.wake = func(ctx context.Context, cid contract.CID, w computer.WakeOptions) (*computer.Computer, error) {
		if err := os.MkdirAll(s.Dir.Computer(cid), 0o700); err != nil {
			return nil, err
		}
		if s.wakes.Load() > 0 {
			c, err := open(ctx, cid, w)
			if err != nil {
				return nil, err
			}
			_, err = c.Log().Append(ctx, contract.Draft{Actor: contract.System(), Type: "computer.created", Data: contract.ComputerCreated{Name: w.Name, Driver: "test"}})
			return c, errors.Join(err, os.WriteFile(s.Dir.Computer(cid, "mine"), nil, 0o600))
		}
		if c, err := open(ctx, cid, w); err != nil || c.Close() != nil {
			return nil, err
		}
		for i := range 5000 {
			if err := os.MkdirAll(s.Dir.Computer(cid, "workspace", fmt.Sprint(i)), 0o700); err != nil {
				return nil, err
			}
		}
		return nil, fault.New("", fault.Unavailable, "Do this.", errors.New("the disk is full"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			var err error
			for ctx.Err() == nil {
				_, err = s.Create(ctx, cid, "New")
				s.mu.Lock()
				p := s.places[cid]
				awake := p != nil && p.state == view.StateAwake
				s.mu.Unlock()
				if awake {
					return
				}
			}
			t.Errorf("it is not made again: %v", err)
		})
	}
	asking.Wait()
	s.closing.Wait()
	if _, err := os.Lstat(s.Dir.Computer(cid, "mine")); err != nil {
		t.Errorf("what was made is gone: %v", err)
	}
	if there, err := s.Bus.Serves(t.Context(), cid); err != nil || !there {
		t.Errorf("its log is gone: %v, %v", there, err)
	}
}

// TestWhatWasThereBeforeIsNotUnmade: a directory that existed before may be a computer whose log is
// elsewhere, so a failure to make a computer of the same id must not remove it.
func TestWhatWasThereBeforeIsNotUnmade(t *testing.T) {
	s := newSleeper(t)
	cid := contract.NewCID()
	if err := os.MkdirAll(s.Dir.Computer(cid, "workspace", "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.fails.Store(&cid)
	if made, err := s.Create(t.Context(), cid, "New"); err != nil || made.Trouble == nil {
		t.Errorf("it says nothing of why it does not wake: %+v, %v", made, err)
	}
	if _, err := os.Lstat(s.Dir.Computer(cid, "workspace", "mine")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}

// TestComputersAreBounded shows that there are no more computers than a machine may have.
func TestComputersAreBounded(t *testing.T) {
	p := newPurse(t)
	for range maxComputers {
		cid := contract.NewCID()
		p.places[cid] = &place{cid: cid, state: view.StateAsleep}
	}
	if _, err := p.Create(t.Context(), contract.NewCID(), "One more"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one too many: %v", err)
	}
}
