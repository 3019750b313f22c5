package dispatch_test

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestWhatACallCostIsStoredBeforeWhatComesOfIt: nobody waits for the disk because of what an Associate's call of the model cost, and in
// the log it still stands in front of the turn and of the call that the turn makes.
func TestWhatACallCostIsStoredBeforeWhatComesOfIt(t *testing.T) {
	h := newHouse(t)
	h.model.waits = func(s ports.ModelScope) {
		if s.Role != contract.KindAssociate {
			if s.Hold != nil {
				t.Error("a Director's turn is stored before it acts, and what it cost with it")
			}
			return
		}
		if err := s.Hold(contract.Draft{Actor: contract.System(), Type: "usage.metered", Run: s.Run, Task: s.Task, Data: contract.UsageMetered{
			Call: contract.NewID(), Role: string(s.Role), Provider: "script", Model: "one", Outcome: "ok", Usage: contract.Usage{TokensIn: 3, TokensOut: 2}}}); err != nil {
			t.Error(err)
		}
	}
	h.model.director = plan(agent("Do it"))
	h.model.associate = steps(use("c1", "write", m{"path": "workspace/project/new.txt", "content": "x"}), use("c2", "read", m{"path": "workspace/project/new.txt"}))
	run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	h.report(run)
	var got []string
	for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
		if e.Run == run && e.Task != "" && slices.Contains([]string{"usage.metered", "turn.recorded", "tool.called"}, e.Type) {
			got = append(got, e.Type)
		}
	}
	want := []string{"usage.metered", "turn.recorded", "tool.called", "turn.recorded", "usage.metered", "turn.recorded", "tool.called", "turn.recorded", "usage.metered", "turn.recorded"}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("stored were %q", got)
	}
}
