package shell

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// TestTheShellIsJudgedByWhatCouldBeSeen: the desktop is judged by every event that could have been
// seen. Once a page was shown a restore, that restore counts.
func TestTheShellIsJudgedByWhatCouldBeSeen(t *testing.T) {
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	closed := func(close func() error) {
		t.Cleanup(func() {
			if err := close(); err != nil {
				t.Error(err)
			}
		})
	}
	closed(b.Close)
	store, err := state.Open(t.Context(), filepath.Join(dir, "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	closed(store.Close)
	cid := contract.NewCID()
	log, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Index: store, Live: b})
	if err != nil {
		t.Fatal(err)
	}
	closed(log.Close)
	if err := store.Recover(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	live := make(chan *nats.Msg, 4096)
	if _, err := b.Conn().ChanSubscribe(contract.SubjectLive(cid), live); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := store.Project(over, log); err != nil && over.Err() == nil {
			t.Error(err)
		}
	})
	for w := range 6 {
		running.Go(func() {
			for n := 0; over.Err() == nil; n++ {
				name := contract.ComputerRenamed{Name: fmt.Sprint("computer ", w, n)}
				if _, err := log.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: name}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	s := &Shell{log: log, state: store}
	for range 100 {
		e, err := contract.UnmarshalEvent((<-live).Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.state.CaughtUp(t.Context(), s.log); err != nil {
			t.Fatal(err)
		}
		if last := store.Last(); last < e.Sequence {
			t.Fatalf("event %d was seen, and the shell goes by what was there up to %d", e.Sequence, last)
		}
		for len(live) > 0 { // only the newest event may still be on its way
			<-live
		}
	}
}
