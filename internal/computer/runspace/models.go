package runspace

import (
	"context"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/gateway"
)

// Models answers the model calls of the loops.
type Models struct {
	CID     contract.CID
	Gateway *gateway.Gateway
	Choice  gateway.Choice // the computer's own
}

// ModelsOf returns the models of a computer, with what the configuration says of it.
func ModelsOf(cid contract.CID, g *gateway.Gateway, c config.Models) Models {
	return Models{CID: cid, Gateway: g, Choice: Choice(c.Computers[string(cid)])}
}

// Choice is what a configuration says of a computer's models, as the gateway takes it.
func Choice(m config.ComputerModels) gateway.Choice {
	return gateway.Choice{Default: m.Default, Roles: map[string]string{string(contract.KindDirector): m.Director, string(contract.KindAssociate): m.Associate}}
}

// Handler implements ports.Models.
func (m Models) Handler(s ports.ModelScope) http.Handler {
	return m.Gateway.Handler(gateway.Scope{
		CID: m.CID, Run: s.Run, Task: s.Task, Role: string(s.Role), Model: s.Model, Choice: m.Choice, Budget: s.Budget, TaskBudget: s.TaskBudget,
	})
}

// Forget implements ports.Models.
func (m Models) Forget(run string) { m.Gateway.Forget(m.CID, run) }

// Resolve implements ports.Models.
func (m Models) Resolve(ctx context.Context, role contract.ActorKind, model string) (provider, name string, err error) {
	return m.Gateway.Resolve(ctx, gateway.Scope{CID: m.CID, Role: string(role), Model: model, Choice: m.Choice})
}
