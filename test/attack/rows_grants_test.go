package attack_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

var grantRows = []Row{
	{Number: 45, Attack: "many runs spend together what none may alone", Defences: []defence.Name{defence.BudgetAll}, Run: func(t *testing.T) Verdict {
		return spends(t, "openai/gpt-5.4", 3, func(o *gateway.Options) { o.Bounds.Day.Tokens = 1000 }, contract.Budget{Tokens: 10_000})
	}},
	{Number: 45, Attack: "a prompt names a model that nobody priced", Defences: []defence.Name{defence.BudgetPrice}, Run: func(t *testing.T) Verdict {
		return spends(t, "openai/never-heard-of-it", 1, func(*gateway.Options) {}, contract.Budget{CostUSD: 0.000001})
	}},
}

// spends makes one call in each of several runs. The attack works if all are made.
func spends(t *testing.T, model string, runs int, tune func(*gateway.Options), run contract.Budget) Verdict {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "x", Repeat: true, Usage: &modelserver.Usage{In: 100, Out: 400}}}}).Start()
	defer s.Close()
	o := gateway.Options{Keys: func(context.Context, string) (string, error) { return "a-key-of-this-test", nil }, LocalBaseURL: "none",
		OpenAIBaseURL: s.OpenAIURL(), Logger: slog.New(slog.DiscardHandler), Default: model}
	tune(&o)
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	cid := contract.NewCID()
	for range runs {
		if _, err = g.Turn(t.Context(), gateway.Scope{CID: cid, Run: contract.NewID(), Role: "director", Budget: run}, contract.TurnRequest{MaxTokens: 400,
			Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "spend"}}}}}, nil); err != nil {
			break
		}
	}
	return Verdict{len(s.Requests()) == runs, fmt.Sprintf("%d of %d calls were made (%v)", len(s.Requests()), runs, err)}
}
