package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// laid makes the directory from which a fork begins.
func (s *sleepFixture) laid(cid contract.CID) string {
	s.t.Helper()
	dir := filepath.Join(s.Dir.Path("computers"), forkDir+string(cid))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "forked.json"), []byte("{}"), 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// computers returns the directories of computers, including unfinished ones.
func (s *sleepFixture) computers() (out []string) {
	s.t.Helper()
	list, err := os.ReadDir(s.Dir.Path("computers"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// TestAForkThatComesToNothingLeavesNothing shows that what was laid out for a fork becomes a
// computer or is removed: if there are too many computers by then, if its id was used or removed,
// if choir is being stopped, or if it does not start.
func TestAForkThatComesToNothingLeavesNothing(t *testing.T) {
	s := newSleeper(t)
	source := s.made("Source")
	nothing := func(when string, cid contract.CID, code fault.Code, err error) {
		t.Helper()
		if !fault.Is(err, code) {
			t.Errorf("%s: %v", when, err)
		}
		if got := strings.Join(s.computers(), " "); got != string(source) {
			t.Errorf("%s there is %s", when, got)
		}
		if p := s.places[cid]; p != nil && p.removed == nil {
			t.Errorf("%s it has a place: %+v", when, p)
		}
	}
	for len(s.places) < maxComputers {
		cid := contract.NewCID()
		s.places[cid] = &place{cid: cid, state: view.StateAsleep}
	}
	cid := contract.NewCID()
	_, err := s.make(t.Context(), cid, "New", s.laid(cid))
	nothing("with too many", cid, fault.Exhausted, err)
	_, err = s.Fork(t.Context(), contract.Person("u-1"), source, cid, "New", "")
	nothing("with too many from the beginning", cid, fault.Exhausted, err)
	for other := range s.places {
		if other != source {
			delete(s.places, other)
		}
	}

	s.places[cid] = &place{cid: cid, state: view.StateAsleep, removed: &removal{}}
	_, err = s.make(t.Context(), cid, "New", s.laid(cid))
	nothing("with the id of one that was removed", cid, fault.Conflict, err)
	delete(s.places, cid)

	s.fails.Store(&cid)
	_, err = s.make(t.Context(), cid, "New", s.laid(cid))
	nothing("when it did not begin", cid, fault.Unavailable, err)
	s.fails.Store(nil)

	s.closed.Store(true)
	_, err = s.make(t.Context(), cid, "New", s.laid(cid))
	nothing("while choir is stopped", cid, fault.Unavailable, err)
	s.closed.Store(false)

	// Removing what a failed fork left does not remove what is laid out for another try.
	through := make(chan struct{})
	s.unmaking = map[contract.CID]chan struct{}{cid: through}
	waits, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.make(waits, cid, "New", s.laid(cid))
	nothing("while what came to nothing is removed", cid, fault.Unavailable, err)
	delete(s.unmaking, cid)

	open := s.Fleet.wake
	s.Fleet.wake = func(ctx context.Context, cid contract.CID, w computer.WakeOptions) (*computer.Computer, error) {
		if _, err := os.Stat(s.Dir.Computer(cid, "forked.json")); err != nil {
			return nil, err
		}
		return open(ctx, cid, w)
	}
	for _, when := range []string{"made", "made again"} { // NotFound: it is described from its log, which is empty here
		_, err := s.make(t.Context(), cid, "New", s.laid(cid))
		if p := s.places[cid]; !fault.Is(err, fault.NotFound) || p == nil || p.state != view.StateAwake || len(s.computers()) != 2 {
			t.Errorf("%s: %+v, %v, %v", when, p, err, s.computers())
		}
	}
}
