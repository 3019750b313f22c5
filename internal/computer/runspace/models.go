package runspace

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/gateway/inward"
	"choir.dev/choiros/internal/view"
)

// Models answers the model calls of the loops, and of programs in boxes.
type Models struct {
	CID     contract.CID
	Gateway *gateway.Gateway
	// Blobs keeps the pictures that programs show to the model.
	Blobs  ports.Blobs
	Choice gateway.Choice // the computer's own
}

// ModelsOf returns the models of a computer, with what the configuration says of it.
func ModelsOf(cid contract.CID, g *gateway.Gateway, c config.Models, blobs ports.Blobs) Models {
	return Models{CID: cid, Gateway: g, Blobs: blobs, Choice: Choice(c.Computers[string(cid)])}
}

// Choice is what a configuration says of a computer's models, as the gateway takes it.
func Choice(m config.ComputerModels) gateway.Choice {
	return gateway.Choice{Default: m.Default, Roles: map[string]string{string(contract.KindDirector): m.Director, string(contract.KindAssociate): m.Associate}}
}

func (m Models) scope(s ports.ModelScope) gateway.Scope {
	return gateway.Scope{CID: m.CID, Run: s.Run, Task: s.Task, Role: string(s.Role), Model: s.Model, Effort: s.Effort, Choice: m.Choice, Budget: s.Budget, TaskBudget: s.TaskBudget,
		Waiter: s.Waiter, Chosen: s.Chosen, Hold: s.Hold}
}

// Handler implements ports.Models.
func (m Models) Handler(s ports.ModelScope) http.Handler { return m.Gateway.Handler(m.scope(s)) }

// Ask implements ports.Models.
func (m Models) Ask(ctx context.Context, s ports.ModelScope, req contract.TurnRequest) (contract.Turn, error) {
	scope := m.scope(s)
	scope.Aside, scope.Hold = true, nil // it is none of what the loop says
	return m.Gateway.Turn(ctx, scope, req, nil)
}

// Inward implements ports.Models. The rehearsal, which understands nothing, is no model for a program.
func (m Models) Inward(s ports.ModelScope, g ports.ModelGrant) http.Handler {
	return inward.Handler(inward.Options{
		Turner: m.Gateway, Scope: m.scope(s), Token: g.Token,
		Model: func(ctx context.Context) (provider, name string, err error) {
			model := s.Model
			if s.Chosen != nil {
				model, _ = s.Chosen()
			}
			provider, name, err = m.Resolve(ctx, s.Role, model)
			if err == nil && provider == ports.Rehearsal {
				err = fault.New("runspace.Inward", fault.Missing, "Set a key: choir secrets set ANTHROPIC_API_KEY", errors.New("this computer has no model, only the rehearsal, which plays plans"))
			}
			return provider, name, err
		},
		Admit: func(context.Context) error { return g.Ready() },
		Keep: func(ctx context.Context, r io.Reader) (contract.BlobRef, int64, error) {
			return m.Blobs.Put(ctx, m.CID, r)
		},
	})
}

// Forget implements ports.Models.
func (m Models) Forget(run string) { m.Gateway.Forget(m.CID, run) }

// Next is what the next prompt would use, by what is known: no service is waited for. Where none can be called it has no
// name: that is told to who prompts, and keeps nobody from the console.
func (m Models) Next(ctx context.Context, c config.Config) (view.Provider, error) {
	p, err := m.next(gateway.Known(ctx), c)
	if fault.Is(err, fault.Missing) {
		return view.Provider{Network: "none", BudgetUSD: c.Budget.CostUSD}, nil
	}
	return p, err
}

func (m Models) next(ctx context.Context, c config.Config) (view.Provider, error) {
	provider, model, err := m.Resolve(ctx, contract.KindDirector, "")
	if err != nil {
		return view.Provider{}, err
	}
	return view.Provider{Name: provider, Model: model, Rehearsal: provider == ports.Rehearsal, Network: "none", BudgetUSD: c.Budget.CostUSD}, nil
}

// Provider is what Next says, and what the next prompt can choose.
func (m Models) Provider(ctx context.Context, c config.Config) (view.Provider, error) {
	p, err := m.next(ctx, c)
	if err == nil {
		p.Choices = m.choices(ctx, c)
	}
	return p, err
}

func (m Models) choices(ctx context.Context, c config.Config) view.Choices {
	out := view.Choices{Review: c.Loops.Reviews(string(m.CID))}
	played := false
	for _, role := range []contract.ActorKind{contract.KindDirector, contract.KindAssociate} {
		scope := gateway.Scope{CID: m.CID, Role: string(role), Choice: m.Choice}
		provider, _, err := m.Gateway.Resolve(ctx, scope)
		played = played || err == nil && provider == ports.Rehearsal
		for _, e := range m.Gateway.Efforts(ctx, scope) {
			if !slices.Contains(out.Efforts, e) {
				out.Efforts = append(out.Efforts, e)
			}
		}
	}
	scope := gateway.Scope{CID: m.CID, Run: "next", Role: string(contract.KindDirector), Choice: m.Choice, Budget: contract.Budget{CostUSD: c.Budget.CostUSD}}
	out.Models = m.Gateway.Choosable(ctx, scope)
	if !played {
		out.Routes, out.DirectWords = []contract.Route{contract.RoutePlan, contract.RouteDirect}, c.Loops.DirectWords
	}
	if len(out.Efforts) > 0 {
		least := []contract.Effort{contract.EffortNone, contract.EffortLow, contract.EffortMedium, contract.EffortHigh}
		slices.SortFunc(out.Efforts, func(a, b contract.Effort) int { return slices.Index(least, a) - slices.Index(least, b) })
		out.Director, out.Associate = contract.Effort(c.Models.Efforts.Director), contract.Effort(c.Models.Efforts.Associate)
	}
	return out
}

// Usable implements ports.Models.
func (m Models) Usable(ctx context.Context, s ports.ModelScope) (provider, name string, err error) {
	return m.Gateway.Usable(ctx, m.scope(s))
}

// Window implements ports.Models.
func (m Models) Window(ctx context.Context, role contract.ActorKind, model string) int {
	return m.Gateway.Window(ctx, gateway.Scope{CID: m.CID, Role: string(role), Model: model, Choice: m.Choice})
}

// Resolve implements ports.Models.
func (m Models) Resolve(ctx context.Context, role contract.ActorKind, model string) (provider, name string, err error) {
	return m.Gateway.Resolve(ctx, gateway.Scope{CID: m.CID, Role: string(role), Model: model, Choice: m.Choice})
}
