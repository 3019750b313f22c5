package dispatch_test

import (
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
)

// TestALoopThatIsInterruptedBeforeItsFirstTurnIsToldOfTheTree: what was not recorded was not told.
func TestALoopThatIsInterruptedBeforeItsFirstTurnIsToldOfTheTree(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "agent", "goal": "Look after it", "tools": []string{"read"}})
	var mu sync.Mutex
	var first []string
	asked, again := make(chan bool), make(chan bool)
	h.model.gate = func(role contract.ActorKind, _ int) {
		if role == contract.KindAssociate {
			select {
			case asked <- true:
				<-again
			case <-again:
			}
		}
	}
	work := steps()
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		mu.Lock()
		first = append(first, req.Messages[0].Parts[0].Text)
		mu.Unlock()
		return work(n, req)
	}
	run := h.submit("look after it")
	<-asked
	h.sleep()
	close(again)
	h.wake()
	if err := h.d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if len(first) == 0 || !strings.Contains(first[0], "Platform: ") {
		t.Errorf("it was told %q", first)
	}
}
