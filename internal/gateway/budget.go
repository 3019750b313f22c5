package gateway

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/provider"
)

// Bounds are the owner's budgets beyond one run's. Only Tokens and CostUSD
// count; 0 is no limit. The smallest of all that apply to a call decides.
type Bounds struct {
	Day      contract.Budget // all computers, one UTC day
	Computer contract.Budget // one computer, in all
	Owner    contract.Budget // all computers, in all
}

// level is one budget that a call must fit into.
type level struct {
	of     string // its name in messages
	key    string // the key of its account
	raise  string // whose budget it is, and how to raise it
	budget contract.Budget
	spent  func(context.Context) (contract.Usage, error) // consumed before this process started; nil: nothing
	acc    *account
}

func (l level) bounded() bool { return l.budget.Tokens > 0 || l.budget.CostUSD > 0 }

// levels returns the budgets that a call has to fit into, the widest first.
func (g *Gateway) levels(s Scope) []level {
	sum := func(cid contract.CID, day string) func(context.Context) (contract.Usage, error) {
		if g.opt.Sum == nil {
			return nil
		}
		return func(ctx context.Context) (contract.Usage, error) { return g.opt.Sum(ctx, cid, day) }
	}
	day := g.now().UTC().Format(time.DateOnly)
	var out []level
	add := func(l level) {
		if l.bounded() {
			out = append(out, l)
		}
	}
	if !defence.Off(defence.BudgetAll) {
		add(level{of: "owner", key: "owner", budget: g.opt.Bounds.Owner, spent: sum("", ""), raise: raise("owner", "all computers of this machine, for good", "")})
		add(level{of: "day", key: dayKey + day, budget: g.opt.Bounds.Day, spent: sum("", day), raise: raise("day", "all computers of this machine together", "wait until midnight UTC, or ")})
	}
	if s.CID != "" && !defence.Off(defence.BudgetAll) {
		add(level{of: "computer", key: "computer/" + string(s.CID), budget: g.opt.Bounds.Computer, spent: sum(s.CID, ""), raise: raise("computer", "this computer, for good", "")})
	}
	if s.Run == "" {
		return out
	}
	run := level{of: "run", key: string(s.CID) + "/" + s.Run, budget: s.Budget,
		raise: "it is the smaller of the prompt's own and the owner's for one run: start another run, or raise budget.tokens or budget.cost_usd in the configuration"}
	if g.opt.Spent != nil {
		run.spent = func(ctx context.Context) (contract.Usage, error) { return g.opt.Spent(ctx, s) }
	}
	out = append(out, run)
	if s.Task != "" {
		out = append(out, level{of: "task", key: run.key + "/" + s.Task, budget: s.TaskBudget, raise: "it is what the Director gave this task"})
	}
	return out
}

const dayKey = "day/"

// raise says whose one of the owner's budgets is, and how to raise it.
func raise(of, whose, first string) string {
	return fmt.Sprintf("it is the owner's, of %s: %sraise budget.%s_tokens or budget.%s_cost_usd in the configuration (0: none) and start choir again", whose, first, of, of)
}

// longest returns the longest answer that is asked for: what the request says, else what the model can do, and not more
// than its window has room for.
func longest(m ModelInfo, asked int, in int64) int {
	out := asked
	switch {
	case out <= 0 && m.MaxOutput > 0:
		out = m.MaxOutput
	case out <= 0:
		out = defaultOut
	case m.MaxOutput > 0:
		out = min(out, m.MaxOutput)
	}
	if room := int64(m.Context) - in; m.Context > 0 && room < int64(out) {
		// The estimate is high: whether it really is too long, the service says.
		out = max(int(room), min(out, defaultOut))
	}
	return min(out, 1<<20)
}

// reserve takes the most that the call can use from every budget that bounds it, under one lock, so
// that parallel calls together can't go over. Rather than refuse, it asks for a shorter answer, as
// long as that is at least minOut tokens.
func (g *Gateway) reserve(ctx context.Context, s Scope, t target, req contract.TurnRequest) (*reservation, error) {
	a := &g.accounts
	r := &reservation{mu: &a.mu, in: estimateIn(req), own: req.MaxTokens <= 0}
	r.maxOut = longest(t.info, req.MaxTokens, r.in)
	levels := slices.DeleteFunc(g.levels(s), func(l level) bool {
		// A call that costs nothing can't exceed a bound of the cost alone.
		return l.of != "run" && l.of != "task" && l.budget.Tokens == 0 && t.info.free()
	})
	for _, l := range levels {
		if l.budget.CostUSD > 0 && !t.info.Priced && !defence.Off(defence.BudgetPrice) {
			return nil, unpriced(t, l, levels)
		}
		if err := g.opening(ctx, l); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range levels {
		l := &levels[i]
		l.acc = a.open(l.key)
		if l.of == "run" && l.acc.parallel >= g.limits.Parallel {
			return nil, turnError(provider.CodeRateLimited, fmt.Sprintf("this run has %d model calls open already", l.acc.parallel), true)
		}
		if err := l.fit(r, t.info); err != nil {
			return nil, err
		}
	}
	r.size(t)
	for i := range levels {
		acc := levels[i].acc
		acc.parallel++
		if !defence.Off(defence.BudgetReserve) {
			acc.tokens += r.tokens
			acc.cost += r.cost
		} else {
			r.free = true
		}
		r.accounts = append(r.accounts, acc)
		if levels[i].of == "task" {
			run := levels[i-1].acc
			if run.tasks == nil {
				run.tasks = map[string]bool{}
			}
			run.tasks[s.Task] = true
		}
	}
	return r, nil
}

// share is the most of what is left of a budget that a call may reserve for an answer for which no length was asked: a
// quarter, so that a long answer that a model could give does not keep parallel calls from being made.
func (r *reservation) share(left float64) int64 {
	if !r.own || left/4 > 1<<30 {
		return 1 << 30
	}
	return max(int64(left/4), defaultOut)
}

// fit shortens the answer to what is left of the budget, or refuses.
func (l *level) fit(r *reservation, m ModelInfo) error {
	m = m.at(r.in)
	if l.budget.Tokens > 0 {
		left := l.budget.Tokens - l.acc.tokens - r.in
		if left < minOut {
			return turnError(provider.CodeBudget, fmt.Sprintf("the %s's budget of %d tokens is used up: %d are spent or reserved and this call needs about %d; %s", l.of, l.budget.Tokens, l.acc.tokens, r.in+minOut, l.raise), false)
		}
		r.maxOut = int(min(int64(r.maxOut), left, r.share(float64(left))))
	}
	if l.budget.CostUSD > 0 && m.Priced {
		left := l.budget.CostUSD - l.acc.cost - price(float64(r.in), m.writePrice())
		tokens := math.Inf(1)
		if m.PriceOut > 0 {
			tokens = math.Floor(left / m.PriceOut * 1e6)
		}
		if left < 0 || tokens < minOut {
			return turnError(provider.CodeBudget, fmt.Sprintf("the %s's budget of %.4f USD is used up: %.4f are spent or reserved; %s", l.of, l.budget.CostUSD, l.acc.cost, l.raise), false)
		}
		r.maxOut = int(min(float64(r.maxOut), tokens, float64(r.share(tokens))))
	}
	return nil
}

// unpriced says why a model without a price can't be used under a cost budget,
// how to give it one, and which budgets of the cost there are that would have to go.
func unpriced(t target, l level, levels []level) error {
	name := t.provider + "/" + t.model
	var keys []string
	other := "; a run's is cost_usd = 0"
	for _, b := range levels {
		switch {
		case b.budget.CostUSD <= 0:
		case b.of == "run":
			keys = append(keys, "cost_usd = 0")
			other = " and none in the prompt"
		case b.of != "task": // a task's is a part of its run's
			keys = append(keys, b.of+"_cost_usd = 0")
		}
	}
	return turnError(provider.CodeBudget, fmt.Sprintf("model %s has no price, so the %s's budget of %.2f USD can't bound it. "+
		"Give it one: [[models]] name = %q with price_in and price_out (USD per million tokens, 0 if it costs nothing) in the file that models.catalogue names; "+
		"or have no cost budget: %s below [budget] in the configuration%s. Then start choir again", name, l.of, l.budget.CostUSD, name, strings.Join(keys, " and "), other), false)
}

// opening asks, once for each account, what its calls consumed before this process started.
func (g *Gateway) opening(ctx context.Context, l level) error {
	if l.spent == nil {
		return nil
	}
	a := &g.accounts
	a.mu.Lock()
	known := a.open(l.key).asked
	a.mu.Unlock()
	if known {
		return nil
	}
	spent, err := l.spent(ctx)
	if err == nil {
		err = spent.Validate() // a negative or absurd number would make room for more
	}
	if err != nil {
		return turnError(provider.CodeUnavailable, fmt.Sprintf("nothing is spent while it is not known how much is left of the %s's budget: %s", l.of, fault.Text(err)), true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(l.key, dayKey) {
		for key, acc := range a.byKey { // the accounts of past days
			if strings.HasPrefix(key, dayKey) && key < l.key && acc.parallel == 0 {
				delete(a.byKey, key)
			}
		}
	}
	if acc := a.open(l.key); !acc.asked {
		acc.asked = true
		acc.tokens += spent.TokensIn + spent.TokensOut
		acc.cost += spent.CostUSD
	}
	return nil
}

// meterTries is how often recording a call's usage is tried. Repeating it is safe, since the
// event's id derives from the call's.
const meterTries = 3

// meter records what a call consumed. It does so even when the caller has gone, because the call
// was made.
func (g *Gateway) meter(ctx context.Context, scope Scope, m contract.UsageMetered) error {
	if g.opt.Meter == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var err error
	for try := range meterTries {
		if try > 0 {
			awake.Pause(ctx, g.limits.Backoff<<try)
		}
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = g.opt.Meter(once, scope, m)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}
