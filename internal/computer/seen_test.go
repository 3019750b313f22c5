package computer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/view"
)

// TestWhoSawAnEventIsNotAnsweredFromBeforeIt: a page sees an event as soon as the log has it, which
// may be before the caller of the append is answered. What the page then asks for must include the
// event: a list that is requested once, because of the event, would lack it for good.
func TestWhoSawAnEventIsNotAnsweredFromBeforeIt(t *testing.T) {
	d := open(t)
	d.create("one\n")
	live := make(chan *nats.Msg, 64)
	proposed := strings.TrimSuffix(contract.SubjectLive(d.cid), ">") + "*.document.proposed"
	if _, err := d.bus.Conn().ChanSubscribe(proposed, live); err != nil {
		t.Fatal(err)
	}
	// One caller proposes, and the others append events that are stored together with the proposal. Each
	// of them waits until the state has its event: what is appended faster than it is projected, as the
	// race detector has it, puts every answer off for longer and longer.
	const proposals, others = 15, 6
	over, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range others {
		writers.Go(func() {
			for n := 0; over.Err() == nil; n++ {
				name := contract.ComputerRenamed{Name: fmt.Sprint("computer ", w, n)}
				_, err := d.log.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: name})
				if err == nil {
					err = d.state.CaughtUp(t.Context(), d.log)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	for i := range proposals {
		key := fmt.Sprint("proposal ", i)
		by := document.Author{Name: "associate", By: contract.AssociateOf(contract.DeriveID("task", key)), Run: contract.DeriveID("run", key), Task: contract.DeriveID("task", key)}
		writers.Go(func() {
			if _, ok, err := d.documents.Propose(t.Context(), d.id, 1, key+"\n", by, key); err != nil || !ok {
				t.Errorf("%v %v", ok, err)
			}
		})
		e := nextProposal(t, live)
		for _, q := range []view.EventQuery{{After: e.Sequence - 1, Limit: 1}, {Run: e.Run}} {
			if p, err := d.Events(t.Context(), q); err != nil || len(p.Events) != 1 || p.Last < e.Sequence {
				t.Errorf("%+v: %d events, the last %d, %v", q, len(p.Events), p.Last, err)
			}
		}
		if list, _, err := d.proposals().List(t.Context(), d.id, false, 0, 100); err != nil || len(list) != 1 || list[0].ID != e.ID {
			t.Errorf("proposal %s is not in the list: %+v %v", e.ID, list, err)
		}
		dismissed(t, d, e.ID)
	}
}

// nextProposal returns the next event about a proposal.
func nextProposal(t *testing.T, live <-chan *nats.Msg) contract.Event {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case m := <-live:
			e, err := contract.UnmarshalEvent(m.Data)
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == "document.proposed" {
				return e
			}
		case <-late:
			t.Fatal("no proposal was seen")
		}
	}
}

func dismissed(t *testing.T, d *desk, proposal string) {
	t.Helper()
	done, err := d.proposals().Resolve(t.Context(), contract.Person("ana"), d.id, proposal, false)
	if err != nil || done.Resolution != contract.ProposalDismissed {
		t.Errorf("dismissed: %+v %v", done, err)
	}
	var left []view.Proposal
	if left, _, err = d.proposals().List(t.Context(), d.id, false, 0, 100); err != nil || len(left) != 0 {
		t.Errorf("still open: %+v %v", left, err)
	}
}
