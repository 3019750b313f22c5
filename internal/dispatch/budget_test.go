package dispatch_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
)

// scoped records the budget with which a Director's turns are asked for.
type scoped struct {
	ports.Models
	mu  sync.Mutex
	got contract.Budget
}

func (s *scoped) Handler(m ports.ModelScope) http.Handler {
	s.mu.Lock()
	s.got = m.Budget
	s.mu.Unlock()
	return s.Models.Handler(m)
}

// TestAPromptCantRaiseTheBudget: of what prompt and owner say, the smaller counts.
func TestAPromptCantRaiseTheBudget(t *testing.T) {
	h := newHouse(t)
	models := &scoped{Models: h.model}
	h.tune = func(o *dispatch.Options) {
		o.Models, o.Budget = models, contract.Budget{WallS: 600, ToolCalls: 100, Tokens: 5000, CostUSD: 2}
	}
	h.sleep()
	h.wake()
	h.model.director = func(int, contract.TurnRequest) []contract.Part {
		return parts(use("d", "report", m{"status": "done", "summary": "It is done."}))
	}
	for _, c := range []struct{ prompt, want contract.Budget }{
		{contract.Budget{}, contract.Budget{WallS: 600, ToolCalls: 100, Tokens: 5000, CostUSD: 2}},
		{contract.Budget{WallS: 86400, ToolCalls: 1000, Tokens: 1e12, CostUSD: 1e9}, contract.Budget{WallS: 600, ToolCalls: 100, Tokens: 5000, CostUSD: 2}},
		{contract.Budget{WallS: 60, ToolCalls: 1, Tokens: 50, CostUSD: 0.5}, contract.Budget{WallS: 60, ToolCalls: 1, Tokens: 50, CostUSD: 0.5}},
	} {
		run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go", Budget: c.prompt})
		if err != nil {
			t.Fatal(err)
		}
		h.report(run)
		models.mu.Lock()
		if models.got != c.want {
			t.Errorf("a prompt with %+v has %+v, want %+v", c.prompt, models.got, c.want)
		}
		models.mu.Unlock()
	}
}

// TestUsageThatCannotBe: a Director's box that reports impossible usage is not believed,
// and its run ends as usual.
func TestUsageThatCannotBe(t *testing.T) {
	for _, usage := range []string{`{"tool_calls":-5,"tokens_in":-1,"cost_usd":-100}`, `{"tokens_in":9223372036854775807,"tool_calls":9223372036854775807,"cost_usd":1e300}`} {
		h := newHouse(t)
		h.boxes.liar = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"end":{"status":"done","summary":"Done.","usage":%s}}`+"\n", usage)
		})
		rep := h.report(h.submit("go"))
		if u := rep.Usage; u.ToolCalls != 0 || u.TokensIn != 0 || u.CostUSD != 0 || rep.Status != contract.RunDone {
			t.Errorf("%s: %+v", usage, rep)
		}
	}
}
