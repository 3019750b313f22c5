package computer

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/state"
)

// bounds are the owner's budgets beyond one run's.
func bounds(b config.Budget) gateway.Bounds {
	return gateway.Bounds{
		Day:      contract.Budget{Tokens: int64(b.DayTokens), CostUSD: b.DayCostUSD},
		Computer: contract.Budget{Tokens: int64(b.ComputerTokens), CostUSD: b.ComputerCostUSD},
		Owner:    contract.Budget{Tokens: int64(b.OwnerTokens), CostUSD: b.OwnerCostUSD},
	}
}

// spent says what a run consumed before this process started.
func (h *Host) spent(ctx context.Context, s gateway.Scope) (contract.Usage, error) {
	return h.usage(ctx, s.CID, state.UsageFilter{Run: s.Run})
}

func (h *Host) usage(ctx context.Context, cid contract.CID, f state.UsageFilter) (contract.Usage, error) {
	c, err := h.get(cid)
	if err != nil {
		return contract.Usage{}, err
	}
	if err := c.caughtUp(ctx); err != nil {
		return contract.Usage{}, err
	}
	sums, err := c.state.Usage(ctx, f)
	if err != nil {
		return contract.Usage{}, err
	}
	var out contract.Usage
	for _, u := range sums {
		out.TokensIn += u.TokensIn
		out.TokensOut += u.TokensOut
		out.CostUSD += u.CostUSD
	}
	return out, nil
}
