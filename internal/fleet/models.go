package fleet

import (
	"context"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/trace/otlp"
	"choir.dev/choiros/internal/websearch"
)

// search is the configured search service, nil if there is none.
func search(o Options) (ports.Search, error) {
	c := o.Config.Search
	if c.Provider == "" {
		return nil, nil
	}
	s, err := websearch.New(websearch.Options{Provider: c.Provider, BaseURL: c.BaseURL, Key: c.Key, Lookup: gateway.Lookup(gateway.Env(o.Getenv), o.Vault.Lookup)})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// traces is where the traces of runs go, nil if nowhere.
func traces(o Options) (*otlp.Exporter, error) {
	c := o.Config.Tracing
	if c.Endpoint == "" {
		return nil, nil
	}
	return otlp.New(otlp.Options{Endpoint: c.Endpoint, Key: c.Headers, Version: o.Version, Lookup: gateway.Lookup(gateway.Env(o.Getenv), o.Vault.Lookup)})
}

// roles are the configured models of roles, as the gateway takes them.
func roles(r config.Roles) map[string]string {
	return map[string]string{string(contract.KindDirector): r.Director, string(contract.KindAssociate): r.Associate}
}

func efforts(r config.Roles) map[string]contract.Effort {
	return map[string]contract.Effort{string(contract.KindDirector): contract.Effort(r.Director), string(contract.KindAssociate): contract.Effort(r.Associate)}
}

// providers are the configured model services, as the gateway takes them.
func providers(configured map[string]config.Provider) map[string]gateway.Service {
	out := make(map[string]gateway.Service, len(configured))
	for name, p := range configured {
		out[name] = gateway.Service{BaseURL: p.BaseURL, Key: p.Key, Wire: gateway.Wire(p.Wire), Region: p.Region}
	}
	return out
}

// lookForModels has those services asked for their models that say what is used where nobody names one.
func (fl *Fleet) lookForModels(ctx context.Context) {
	choices := []gateway.Choice{{}}
	for _, m := range fl.Config.Models.Computers {
		choices = append(choices, runspace.Choice(m))
	}
	for _, choice := range choices {
		for _, role := range []contract.ActorKind{contract.KindDirector, contract.KindAssociate} {
			fl.machine.Gateway.Look(ctx, gateway.Scope{Role: string(role), Choice: choice})
		}
	}
}

// checkComputers refuses what is configured of single computers under what is no computer's id, and models of theirs that no name stands for. A computer that is not
// here may be put back or imported, so it is none that is wrong.
func checkComputers(g *gateway.Gateway, c config.Config) error {
	for _, id := range c.Loops.ReviewComputers {
		if err := contract.CID(id).Validate(); err != nil {
			return fault.New("fleet.New", fault.Invalid, "See choir computers for the ids.", fmt.Errorf("loops.review_computers: %w", err))
		}
	}
	for id, m := range c.Models.Computers {
		err := g.CheckChoice(runspace.Choice(m))
		if err == nil {
			err = contract.CID(id).Validate()
		}
		if err != nil {
			return fault.New("fleet.New", fault.Invalid, "See choir computers for the ids, and choir models for the models.", fmt.Errorf("models.computers.%s: %w", id, err))
		}
	}
	return nil
}
