package dispatch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
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

// TestAnAttemptThatGetsOnMayLoseItsBoxAsOftenAsItDoes: each time another call has returned, so it isn't the box that
// makes the attempt fail, nor how often the same process opened another.
func TestAnAttemptThatGetsOnMayLoseItsBoxAsOftenAsItDoes(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	h.tune = func(o *dispatch.Options) { o.Turns = 100 }
	h.wake()
	h.boxes.dies = "bash"
	h.model.director = plan(m{"kind": "agent", "goal": "g", "tools": []string{"bash", "grep"}})
	const deaths = 12
	h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
		switch {
		case n >= 2*deaths:
			return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
		case n%2 == 0:
			return parts(use(fmt.Sprintf("l%d", n), "grep", m{"pattern": fmt.Sprint(n)}))
		}
		return parts(use(fmt.Sprintf("b%d", n), "bash", m{"command": fmt.Sprint("true ", n)}))
	}
	rep := h.report(h.submit("go"))
	h.quiet()
	if res := h.results(); rep.Status != contract.RunDone || len(res) != 1 {
		t.Fatalf("%+v\n%+v", rep, res)
	}
}
