package dispatch_test

import (
	"fmt"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
)

// TestADocumentCountsAllCommandsOfALongTask: a run's document shows the newest commands of a task and counts the earlier ones by
// the log, more than a result lists, and those from before a restart too.
func TestADocumentCountsAllCommandsOfALongTask(t *testing.T) {
	const commands, before = 75, 30
	documents := map[bool]string{}
	for _, disturbed := range []bool{false, true} {
		h := newHouse(t)
		h.sleep()
		h.tune = func(o *dispatch.Options) { o.Turns = 200 }
		h.wake()
		h.model.director = plan(m{"kind": "agent", "goal": "a long one", "tools": []string{"bash"}})
		reached, goOn := make(chan struct{}), make(chan struct{})
		h.model.gate = func(role contract.ActorKind, n int) {
			if role == contract.KindAssociate && n == before {
				select {
				case reached <- struct{}{}:
					<-goOn
				case <-goOn:
				}
			}
		}
		h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
			if n == commands {
				return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
			}
			return parts(use(fmt.Sprintf("c%d", n), "bash", m{"command": fmt.Sprintf("echo %d", n)}))
		}
		run := h.submit("work for long")
		<-reached
		if disturbed {
			h.sleep()
		}
		close(goOn)
		if disturbed {
			h.wake()
			if err := h.d.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if rep := h.report(run); rep.Status != contract.RunDone {
			t.Fatalf("%+v\n%s", rep, h.story())
		}
		h.quiet()
		for _, doc := range h.docs.docs {
			documents[disturbed] = doc.Body
		}
		for i := range commands {
			if got := strings.Contains(documents[disturbed], fmt.Sprintf("echo %d`: exit 0", i)); got != (i >= commands-10) {
				t.Errorf("restarted %v: that command %d is shown is %v", disturbed, i, got)
			}
		}
		if want := fmt.Sprintf("… %d earlier commands\n", commands-10); !strings.Contains(documents[disturbed], want) {
			t.Errorf("restarted %v: %q is not in\n%s", disturbed, want, documents[disturbed])
		}
	}
}
