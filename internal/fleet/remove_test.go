package fleet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// TestARemovedComputerIsGoneInTheEnd shows that a removed computer is set aside even while it is in
// use, that nobody finds it, that it can be put back for a week and no longer, and that nothing of
// it is left then. If a crash leaves something, the next sweep removes it.
func TestARemovedComputerIsGoneInTheEnd(t *testing.T) {
	s := newSleeper(t)
	keep, cid := s.made("Kept"), s.made("Removed")
	ctx, done := context.WithCancel(t.Context())
	defer done()
	c, err := s.Get(ctx, cid)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Remove(t.Context(), cid, "ann")
	if err != nil || info.Name != "Removed" || info.Removed.IsZero() {
		t.Fatalf("removed: %+v, %v", info, err)
	}
	if _, err := c.(*computer.Computer).Log().Append(ctx, opened()); err == nil {
		t.Error("who had it still has it")
	}
	if _, err := s.Get(t.Context(), cid); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is found: %v", err)
	}
	if _, err := s.Create(t.Context(), cid, "Again"); !fault.Is(err, fault.Conflict) {
		t.Errorf("it is made again: %v", err)
	}
	if back, err := s.PutBack(t.Context(), cid); err != nil || back.State != view.StateAwake || !back.Removed.IsZero() {
		t.Errorf("put back: %+v, %v", back, err)
	}
	if err := s.sweepRemoved(t.Context(), time.Now().Add(2*removedFor)); err != nil {
		t.Errorf("nothing is removed: %v", err)
	}
	if _, err := s.Remove(t.Context(), cid, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := s.sweepRemoved(t.Context(), time.Now().Add(removedFor-time.Hour)); err != nil {
		t.Error(err)
	}
	if list, err := s.Removed(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("before its time: %+v, %v", list, err)
	}
	for range 2 {
		if err := s.sweepRemoved(t.Context(), time.Now().Add(removedFor+time.Hour)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(s.Dir.Computer(cid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if there, err := s.Bus.Serves(t.Context(), cid); there || err != nil {
		t.Errorf("its log: %v, %v", there, err)
	}
	if _, err := s.PutBack(t.Context(), cid); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is put back: %v", err)
	}
	left := s.Dir.Path("computers", goneDir+string(cid))
	if err := os.MkdirAll(left+"/workspace", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.sweepRemoved(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a death left: %v", err)
	}
	if _, err := s.Get(t.Context(), keep); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// TestARemovedComputerIsNotWoken shows that a request for a sleeping computer that is being removed
// does not wake it, and that it can be put back.
func TestARemovedComputerIsNotWoken(t *testing.T) {
	s := newSleeper(t)
	for range 10 {
		cid := s.made("Removed")
		ctx, done := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		asking.Go(func() {
			for {
				if _, err := s.Get(ctx, cid); fault.Is(err, fault.NotFound) {
					return
				}
			}
		})
		_, err := s.Remove(t.Context(), cid, "ann")
		done()
		asking.Wait()
		s.waking.Wait()
		s.closing.Wait()
		s.mu.Lock()
		state, c := s.places[cid].state, s.places[cid].computer
		s.mu.Unlock()
		if err != nil || state != view.StateAsleep || c != nil {
			t.Fatalf("removed, and %s: %v", state, err)
		}
		if back, err := s.PutBack(t.Context(), cid); err != nil || back.State != view.StateAwake {
			t.Fatalf("put back: %+v, %v", back, err)
		}
	}
}

// TestAClockPutForwardTakesNoComputer shows that the age of a removed computer counts the time that
// the program itself saw pass, plus at most a day for the time in which it did not run.
func TestAClockPutForwardTakesNoComputer(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		r    removal
		gone bool
	}{
		"a clock put forward":       {removal{At: now.Add(-60 * 24 * time.Hour), Seen: now.Add(-60 * 24 * time.Hour)}, false},
		"a clock put back":          {removal{At: now.Add(24 * time.Hour), Age: removedFor - time.Hour, Seen: now.Add(24 * time.Hour)}, false},
		"an earlier version's":      {removal{At: now.Add(-60 * 24 * time.Hour)}, false},
		"a week that was seen":      {removal{At: now.Add(-7 * 24 * time.Hour), Age: removedFor - time.Hour, Seen: now.Add(-2 * time.Hour)}, true},
		"a week with a day of rest": {removal{At: now.Add(-9 * 24 * time.Hour), Age: removedFor - 23*time.Hour, Seen: now.Add(-3 * 24 * time.Hour)}, true},
	} {
		s := newSleeper(t)
		cid := s.made("Removed")
		if _, err := s.Remove(t.Context(), cid, "ann"); err != nil {
			t.Fatal(err)
		}
		if err := s.keepRemoval(cid, c.r); err != nil {
			t.Fatal(err)
		}
		r, err := readRemoval(s.Dir.Computer(cid, removedFile), now)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.places[cid].removed = r
		s.mu.Unlock()
		if err := s.sweepRemoved(t.Context(), now); err != nil {
			t.Error(err)
		}
		list, err := s.Removed(t.Context())
		if err != nil || (len(list) == 0) != c.gone {
			t.Errorf("%s: gone %t, %v", what, len(list) == 0, err)
		}
		if len(list) > 0 && (list[0].Gone.Before(now) || list[0].Gone.After(now.Add(removedFor))) {
			t.Errorf("%s: said to be gone at %s", what, list[0].Gone)
		}
		if kept, err := readRemoval(s.Dir.Computer(cid, removedFile), now); !c.gone && (err != nil || kept == nil || kept.Age != r.Age) {
			t.Errorf("%s: written down is %+v, %v; it is %s old", what, kept, err, r.Age)
		}
	}
}
