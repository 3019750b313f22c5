package dispatch_test

import (
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestAPromptChoosesItsEffort: the models of both loops are told how much to think.
func TestAPromptChoosesItsEffort(t *testing.T) {
	h := newHouse(t)
	var mu sync.Mutex
	told := map[contract.ActorKind]contract.Effort{}
	h.model.waits = func(s ports.ModelScope) {
		mu.Lock()
		defer mu.Unlock()
		told[s.Role] = s.Effort
	}
	h.model.director = plan(agent("Do it"))
	h.model.associate = steps()
	run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go", Effort: contract.EffortHigh})
	if err != nil {
		t.Fatal(err)
	}
	h.report(run)
	mu.Lock()
	defer mu.Unlock()
	if told[contract.KindDirector] != contract.EffortHigh || told[contract.KindAssociate] != contract.EffortHigh {
		t.Errorf("told %v", told)
	}
}
