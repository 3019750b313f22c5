package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// TestAComputerThatCantBeAskedTakesNoOthersInbox: what waits in the others is listed, also behind one that stands still,
// and the one is named with the reason.
func TestAComputerThatCantBeAskedTakesNoOthersInbox(t *testing.T) {
	well, ill, still, after := contract.NewCID(), contract.NewCID(), contract.NewCID(), contract.NewCID()
	got, err := inboxOf(t.Context(), []contract.CID{well, ill, still, after}, 50*time.Millisecond, func(ctx context.Context, cid contract.CID) ([]view.Waiting, error) {
		switch cid {
		case ill:
			return nil, fault.New("state.Wait", fault.Unavailable, "", context.DeadlineExceeded)
		case still:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []view.Waiting{{Computer: cid, Kind: view.WaitsReview}}, nil
	}, func(cid contract.CID, err error) view.Waiting {
		return view.Waiting{Computer: cid, Kind: view.WaitsUnknown, Reason: fault.Text(err)}
	})
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct {
		cid  contract.CID
		kind view.WaitingKind
	}{{well, view.WaitsReview}, {ill, view.WaitsUnknown}, {still, view.WaitsUnknown}, {after, view.WaitsReview}} {
		if w := got[i]; w.Computer != want.cid || w.Kind != want.kind || (w.Kind == view.WaitsUnknown) != (w.Reason != "") {
			t.Errorf("%d: %+v", i, w)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inboxOf(ctx, []contract.CID{well}, time.Second, func(context.Context, contract.CID) ([]view.Waiting, error) { return nil, ctx.Err() }, nil); err == nil {
		t.Error("who has gone was answered")
	}
}

// TestComputersAreAskedAtTheSameTime: many that stand still take no longer than one; a panic in asking one is that one's.
func TestComputersAreAskedAtTheSameTime(t *testing.T) {
	cids := make([]contract.CID, askedAtOnce)
	for i := range cids {
		cids[i] = contract.NewCID()
	}
	arrived := make(chan struct{})
	var all sync.WaitGroup
	all.Add(len(cids))
	go func() {
		all.Wait()
		close(arrived)
	}()
	got, err := inboxOf(t.Context(), cids, 20*time.Second, func(ctx context.Context, cid contract.CID) ([]view.Waiting, error) {
		all.Done()
		select {
		case <-arrived: // each has been asked before any has answered
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if cid == cids[1] {
			panic("of this test")
		}
		return []view.Waiting{{Computer: cid, Kind: view.WaitsReview}}, nil
	}, func(cid contract.CID, err error) view.Waiting {
		return view.Waiting{Computer: cid, Kind: view.WaitsUnknown, Reason: fault.Text(err)}
	})
	if err != nil || len(got) != len(cids) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, w := range got {
		if w.Computer != cids[i] || (w.Kind == view.WaitsUnknown) != (i == 1) {
			t.Errorf("%d: %+v", i, w)
		}
	}
}
