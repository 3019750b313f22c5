package gateway_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

func code(err error) string {
	var te *contract.TurnError
	if errors.As(err, &te) {
		return te.Code
	}
	return ""
}

func TestParallelCallsCannotOverrunABudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		budget contract.Budget
	}{
		{"tokens", contract.Budget{Tokens: 2000}},
		{"cost", contract.Budget{CostUSD: 0.03}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Each call uses everything that it was allowed, so its usage shows what that was.
			g, s, m := play(t, modelserver.Anthropic, nil, modelserver.Turn{Text: "x", Repeat: true, Usage: &modelserver.Usage{In: 80, Out: 500}})
			sc := scope()
			sc.Budget = c.budget
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					_, err := g.Turn(t.Context(), sc, say("go"), nil)
					if err != nil && code(err) != "budget" {
						t.Errorf("got %v", err)
					}
				})
			}
			wg.Wait()
			var sum contract.Usage
			for _, u := range m.taken() {
				sum = sum.Add(u.Usage)
			}
			if tokens := sum.TokensIn + sum.TokensOut; c.budget.Tokens > 0 && (tokens > c.budget.Tokens || tokens == 0) {
				t.Errorf("used %d of %d tokens", tokens, c.budget.Tokens)
			}
			if c.budget.CostUSD > 0 && (sum.CostUSD > c.budget.CostUSD || sum.CostUSD == 0) {
				t.Errorf("used %v of %v USD", sum.CostUSD, c.budget.CostUSD)
			}
			if n := len(s.Requests()); n == 12 || n != len(m.taken()) {
				t.Errorf("%d requests, %d metered", n, len(m.taken()))
			}
		})
	}
}

func TestBudgetOfRunAndTask(t *testing.T) {
	g, _, _ := play(t, modelserver.OpenAI, nil, modelserver.Turn{Text: "x", Repeat: true, Usage: &modelserver.Usage{In: 100, Out: 300, Exact: true}})
	sc := scope()
	sc.Budget.Tokens = 5000
	first, second := sc, sc
	first.Task, first.TaskBudget.Tokens = contract.NewID(), 600
	second.Task, second.TaskBudget.Tokens = contract.NewID(), 600
	for i, s := range []gateway.Scope{first, second} {
		if _, err := g.Turn(t.Context(), s, say("go"), nil); err != nil {
			t.Fatalf("task %d, first call: %v", i, err)
		}
	}
	// 400 of 600 are used. The next call still fits with a shorter answer, but the service uses 300
	// anyway, and then the task's budget is used up.
	if _, err := g.Turn(t.Context(), first, say("go"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Turn(t.Context(), first, say("go"), nil); code(err) != "budget" || !strings.Contains(err.Error(), "task's budget") {
		t.Errorf("got %v", err)
	}
	if _, err := g.Turn(t.Context(), sc, say("go"), nil); err != nil {
		t.Errorf("the run itself has budget left: %v", err)
	}
	g.Forget(sc.CID, sc.Run)
	if _, err := g.Turn(t.Context(), first, say("go"), nil); err != nil {
		t.Errorf("a forgotten run starts anew: %v", err)
	}
}

func TestBudgetSurvivesARestart(t *testing.T) {
	asked := 0
	g, _, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) {
		o.Spent = func(context.Context, gateway.Scope) (contract.Usage, error) {
			asked++
			return contract.Usage{TokensIn: 900, TokensOut: 90}, nil
		}
	}, modelserver.Turn{Text: "x", Repeat: true})
	sc := scope()
	sc.Budget.Tokens = 1000
	for range 2 {
		if _, err := g.Turn(t.Context(), sc, say("go"), nil); code(err) != "budget" {
			t.Errorf("got %v", err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestBudgetIsGivenBackWhenACallFails(t *testing.T) {
	g, _, _ := play(t, modelserver.Anthropic, nil,
		modelserver.Turn{Text: "no", Fault: &modelserver.Fault{Kind: "status", Status: 400}},
		modelserver.Turn{Text: "x", Usage: &modelserver.Usage{In: 10, Out: 10}})
	sc := scope()
	sc.Budget.Tokens = 700
	if _, err := g.Turn(t.Context(), sc, say("go"), nil); code(err) != "invalid" {
		t.Fatalf("got %v", err)
	}
	if _, err := g.Turn(t.Context(), sc, say("go"), nil); err != nil {
		t.Errorf("the failed call's reservation was kept: %v", err)
	}
}

func TestUnknownPriceIsMarked(t *testing.T) {
	g, _, m := play(t, modelserver.OpenAI, func(o *gateway.Options) { o.Default = "openai/never-heard-of-it" }, modelserver.Turn{Text: "x"})
	if _, err := g.Turn(t.Context(), scope(), say("go"), nil); err != nil {
		t.Fatal(err)
	}
	if u := m.taken()[0]; !u.Estimated || u.Usage.CostUSD != 0 || u.Usage.TokensOut == 0 {
		t.Errorf("metered %+v", u)
	}
}
