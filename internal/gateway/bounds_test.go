package gateway_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// TestTheSmallestBudgetCounts shows that whatever a run may spend, the day's, the computer's and
// the owner's bounds hold, including what was spent before.
func TestTheSmallestBudgetCounts(t *testing.T) {
	large, small := contract.Budget{Tokens: 1_000_000, CostUSD: 100}, contract.Budget{Tokens: 900}
	cheap := contract.Budget{CostUSD: 0.004}
	for _, c := range []struct {
		of     string
		bounds gateway.Bounds
	}{
		{"day", gateway.Bounds{Day: small, Computer: large, Owner: large}},
		{"computer", gateway.Bounds{Day: large, Computer: small, Owner: large}},
		{"owner", gateway.Bounds{Day: large, Computer: large, Owner: small}},
		{"day", gateway.Bounds{Day: cheap}}, {"computer", gateway.Bounds{Computer: cheap}}, {"owner", gateway.Bounds{Owner: cheap}},
	} {
		asked := map[string]int{}
		g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) {
			o.Bounds = c.bounds
			o.Sum = func(_ context.Context, cid contract.CID, day string) (contract.Usage, error) {
				of := map[[2]bool]string{{false, false}: "owner", {false, true}: "day", {true, false}: "computer"}[[2]bool{cid != "", day != ""}]
				asked[of]++
				if of == c.of {
					return contract.Usage{TokensIn: 400, TokensOut: 100, CostUSD: 0.002}, nil
				}
				return contract.Usage{}, nil
			}
		}, modelserver.Turn{Text: "x", Repeat: true, Usage: &modelserver.Usage{In: 80, Out: 100, Exact: true}})
		sc := scope()
		sc.Budget = large
		if _, err := g.Turn(t.Context(), sc, say("go"), nil); err != nil {
			t.Errorf("%s: the first call still fits: %v", c.of, err)
		}
		other := sc
		other.Run, other.Task, other.TaskBudget = contract.NewID(), contract.NewID(), large
		for i := 0; ; i++ {
			_, err := g.Turn(t.Context(), other, say("go"), nil)
			if code(err) == "budget" && strings.Contains(err.Error(), c.of+"'s budget") {
				break
			}
			if err != nil || i > 4 {
				t.Fatalf("%s: another run's call: %v", c.of, err)
			}
		}
		if n := len(s.Requests()); n == 0 || n > 5 {
			t.Errorf("%s: %d requests", c.of, n)
		}
		for of, n := range asked {
			if n != 1 {
				t.Errorf("%s: the sum of the %s was asked %d times", c.of, of, n)
			}
		}
	}
}

// TestASumThatCannotBe shows that a stored sum that would make room for more than the budget is
// refused.
func TestASumThatCannotBe(t *testing.T) {
	for name, sum := range map[string]func(context.Context, contract.CID, string) (contract.Usage, error){
		"negative": func(context.Context, contract.CID, string) (contract.Usage, error) {
			return contract.Usage{TokensIn: -5}, nil
		},
		"unreadable": func(context.Context, contract.CID, string) (contract.Usage, error) {
			return contract.Usage{}, errors.New("disk on fire")
		},
	} {
		g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) {
			o.Bounds.Day.Tokens = 10_000
			o.Sum = sum
		}, modelserver.Turn{Text: "x"})
		if _, err := g.Turn(t.Context(), scope(), say("go"), nil); code(err) != "unavailable" || len(s.Requests()) > 0 {
			t.Errorf("%s: %v, %d requests", name, err, len(s.Requests()))
		}
	}
}

// TestModelsWithoutAPrice shows that models without a known price are refused under a cost budget,
// which can't bound them, until they have a price, which may be 0.
func TestModelsWithoutAPrice(t *testing.T) {
	dir := t.TempDir()
	free := filepath.Join(dir, "free.toml")
	if err := os.WriteFile(free, []byte("[[models]]\nname = 'openai/never-heard-of-it'\nprice_in = 0\nprice_out = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		catalogue string
		budget    contract.Budget
		bounds    gateway.Bounds
		refused   bool
	}{
		{"no cost budget", "", contract.Budget{Tokens: 10_000}, gateway.Bounds{}, false},
		{"the run's", "", contract.Budget{CostUSD: 5}, gateway.Bounds{}, true},
		{"the day's", "", contract.Budget{}, gateway.Bounds{Day: contract.Budget{CostUSD: 5}}, true},
		{"the run's and the day's", "", contract.Budget{CostUSD: 4}, gateway.Bounds{Day: contract.Budget{CostUSD: 5}}, true},
		{"a price of 0", free, contract.Budget{CostUSD: 5}, gateway.Bounds{Day: contract.Budget{CostUSD: 5}}, false},
	} {
		g, s, m := play(t, modelserver.OpenAI, func(o *gateway.Options) {
			o.Default, o.Catalogue, o.Bounds = "openai/never-heard-of-it", c.catalogue, c.bounds
		}, modelserver.Turn{Text: "x"})
		sc := scope()
		sc.Budget = c.budget
		_, err := g.Turn(t.Context(), sc, say("go"), nil)
		if !c.refused && err != nil || c.refused && (code(err) != "budget" || len(s.Requests())+len(m.taken()) > 0) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.refused && (!strings.Contains(err.Error(), `"openai/never-heard-of-it"`) || !strings.Contains(err.Error(), "price_in") || !strings.Contains(err.Error(), "models.catalogue")) {
			t.Errorf("%s: it does not say how to set a price: %v", c.name, err)
		}
		for of, key := range map[float64]string{c.budget.CostUSD: " cost_usd = 0", c.bounds.Day.CostUSD: "day_cost_usd = 0"} {
			if c.refused && of > 0 && !strings.Contains(err.Error(), key) {
				t.Errorf("%s: it does not name %s, without which it goes on to refuse: %v", c.name, key, err)
			}
		}
	}
	// The rehearsal and models on this machine are declared to cost nothing.
	g, _, m := play(t, modelserver.OpenAI, func(o *gateway.Options) { o.Default = "rehearsal" })
	sc := scope()
	sc.Budget.CostUSD = 0.000001
	if _, err := g.Turn(t.Context(), sc, say("hello"), nil); err != nil || len(m.taken()) != 1 || m.taken()[0].Estimated {
		t.Errorf("the rehearsal: %v, %+v", err, m.taken())
	}
}

// TestAMeterThatFailsOnce shows that if recording a call's usage fails once, nothing is lost and
// nothing is charged twice.
func TestAMeterThatFailsOnce(t *testing.T) {
	var tries atomic.Int32
	g, s, m := play(t, modelserver.OpenAI, func(o *gateway.Options) {
		record := o.Meter
		o.Meter = func(ctx context.Context, sc gateway.Scope, u contract.UsageMetered) error {
			if tries.Add(1) == 1 {
				return errors.New("the log is busy")
			}
			return record(ctx, sc, u)
		}
	}, modelserver.Turn{Text: "fine"})
	if _, err := g.Turn(t.Context(), scope(), say("go"), nil); err != nil || len(m.taken()) != 1 || len(s.Requests()) != 1 {
		t.Errorf("%v, %d metered, %d requests", err, len(m.taken()), len(s.Requests()))
	}
}

// TestUnknownSpendingStopsWhatItBounds shows that calls are refused, with a reason, while it is not
// known what was spent before. A bound of the cost alone does not stop models that cost nothing.
func TestUnknownSpendingStopsWhatItBounds(t *testing.T) {
	dollars, tokens := gateway.Bounds{Day: contract.Budget{CostUSD: 50}}, gateway.Bounds{Day: contract.Budget{Tokens: 1_000_000}}
	for _, c := range []struct {
		name, price string
		bounds      gateway.Bounds
		refused     bool
	}{
		{"a price", "1", dollars, true},
		{"no price to speak of", "0", dollars, false},
		{"a bound of tokens", "0", tokens, true},
	} {
		path := filepath.Join(t.TempDir(), "catalogue.toml")
		if err := os.WriteFile(path, []byte("[[models]]\nname = 'openai/mine'\nprice_in = "+c.price+"\nprice_out = "+c.price+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		g, s, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) {
			o.Catalogue, o.Default, o.Bounds = path, "openai/mine", c.bounds
			o.Sum = func(context.Context, contract.CID, string) (contract.Usage, error) {
				return contract.Usage{}, errors.New("what Ann's has spent is not known")
			}
		}, modelserver.Turn{Text: "x", Repeat: true})
		_, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if c.refused != (code(err) == "unavailable" && strings.Contains(err.Error(), "Ann's") && strings.Contains(err.Error(), "the day's budget") && len(s.Requests()) == 0) || !c.refused && err != nil {
			t.Errorf("%s: %v, %d requests", c.name, err, len(s.Requests()))
		}
	}
}
