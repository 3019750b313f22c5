package runspace

import (
	"context"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/gateway"
)

// Models answers the model calls of the loops.
type Models struct {
	CID     contract.CID
	Gateway *gateway.Gateway
}

// Handler implements ports.Models.
func (m Models) Handler(s ports.ModelScope) http.Handler {
	return m.Gateway.Handler(gateway.Scope{
		Waiter: s.Waiter, Chosen: s.Chosen,
		CID: m.CID, Run: s.Run, Task: s.Task, Role: string(s.Role), Model: s.Model, Budget: s.Budget, TaskBudget: s.TaskBudget,
	})
}

// Forget implements ports.Models.
func (m Models) Forget(run string) { m.Gateway.Forget(m.CID, run) }

// Window implements ports.Models.
func (m Models) Window(ctx context.Context, _ contract.ActorKind, model string) int {
	return m.Gateway.Window(ctx, model)
}

// Resolve implements ports.Models.
func (m Models) Resolve(ctx context.Context, _ contract.ActorKind, model string) (provider, name string, err error) {
	return m.Gateway.Resolve(ctx, model)
}
