package dispatch

import (
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// budget returns the run's budget: of each of its prompt's and its owner's bounds the smaller.
func (r *run) Budget() contract.Budget {
	b, own := r.story.Prompt.Budget, r.dispatcher.options.Budget
	if own.WallS == 0 {
		own.WallS = int(r.dispatcher.options.Times.RunWall / time.Second)
	}
	b.WallS = smaller(b.WallS, own.WallS)
	b.ToolCalls = smaller(b.ToolCalls, own.ToolCalls)
	b.Tokens = smaller(b.Tokens, own.Tokens)
	b.CostUSD = smaller(b.CostUSD, own.CostUSD)
	return b
}

// left bounds the budget of a task by what is left of the run's.
func (r *run) left(b contract.Budget) contract.Budget {
	all := r.Budget()
	r.mu.Lock()
	used := r.story.Metered
	r.mu.Unlock()
	b.WallS = smaller(b.WallS, max(1, all.WallS-int(r.used()/time.Second)))
	if all.Tokens > 0 {
		b.Tokens = smaller(b.Tokens, max(1, all.Tokens-used.TokensIn-used.TokensOut))
	}
	if all.CostUSD > 0 {
		b.CostUSD = smaller(b.CostUSD, max(1e-6, all.CostUSD-used.CostUSD))
	}
	return b
}

// smaller returns the smaller of two bounds, of which 0 means none.
func smaller[N int | int64 | float64](prompt, own N) N {
	if prompt <= 0 || own > 0 && own < prompt && !defence.Off(defence.BudgetOwner) {
		return own
	}
	return prompt
}

// credible returns usage as a loop reports it, or none if it is negative or absurd: a run whose usage no
// event can hold could never end.
func credible(u contract.Usage) contract.Usage {
	if u.Validate() != nil && !defence.Off(defence.BudgetCredible) {
		return contract.Usage{}
	}
	return u
}

// bounded limits a sum of usages to what an event can hold.
func bounded(u contract.Usage) contract.Usage {
	const tokens, calls, usd = 1_000_000_000_000, 1_000_000_000, 1e9 // as contract.Usage has them
	return contract.Usage{WallMS: min(u.WallMS, tokens), ToolCalls: min(u.ToolCalls, calls), TokensIn: min(u.TokensIn, tokens), TokensOut: min(u.TokensOut, tokens), CostUSD: min(u.CostUSD, usd)}
}
