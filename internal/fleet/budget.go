package fleet

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/gateway"
)

// bounds are the owner's budgets beyond one run's.
func bounds(b config.Budget) gateway.Bounds {
	return gateway.Bounds{
		Day:      contract.Budget{Tokens: int64(b.DayTokens), CostUSD: b.DayCostUSD},
		Computer: contract.Budget{Tokens: int64(b.ComputerTokens), CostUSD: b.ComputerCostUSD},
		Owner:    contract.Budget{Tokens: int64(b.OwnerTokens), CostUSD: b.OwnerCostUSD},
	}
}

// spent returns what a run consumed before this process started.
func (fl *Fleet) spent(ctx context.Context, s gateway.Scope) (contract.Usage, error) {
	c, err := fl.get(s.CID)
	if err != nil {
		return contract.Usage{}, err
	}
	return c.SpentOn(ctx, s.Run)
}
