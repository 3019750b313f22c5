package dispatch

import (
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// budget bounds the run: of what its prompt and its owner say, the smaller.
func (r *run) budget() contract.Budget {
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

// smaller is the smaller of two bounds; 0 is none. A prompt's comes first.
func smaller[N int | int64 | float64](prompt, own N) N {
	if prompt <= 0 || own > 0 && own < prompt && !defence.Off(defence.BudgetOwner) {
		return own
	}
	return prompt
}

// credible is usage as a loop reports it: what is negative or absurd is not
// believed, since a run whose usage no event may hold could never end.
func credible(u contract.Usage) contract.Usage {
	if u.Validate() != nil && !defence.Off(defence.BudgetCredible) {
		return contract.Usage{}
	}
	return u
}

// bounded keeps a sum of usages within what an event may say.
func bounded(u contract.Usage) contract.Usage {
	const tokens, calls, usd = 1_000_000_000_000, 1_000_000_000, 1e9 // as contract.Usage has them
	return contract.Usage{WallMS: min(u.WallMS, tokens), ToolCalls: min(u.ToolCalls, calls), TokensIn: min(u.TokensIn, tokens), TokensOut: min(u.TokensOut, tokens), CostUSD: min(u.CostUSD, usd)}
}
