package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
)

// Model is one model that a person can choose.
type Model struct {
	ModelInfo
	Provider   string   `json:"provider"`
	Key        string   `json:"key,omitempty"`     // the name of its provider's key
	Configured bool     `json:"configured"`        // whether it can be called now
	Default    bool     `json:"default"`           // whether it is used when no model is named
	Roles      []string `json:"roles,omitempty"`   // those that use it when no model is named
	Aliases    []string `json:"aliases,omitempty"` // those that stand for it now
}

// Models lists the catalogue, the rehearsal and the models of servers on this machine. A key that can't be read counts as
// not configured.
func (g *Gateway) Models(ctx context.Context) []Model {
	usable, byName := map[string]bool{ProviderRehearsal: true}, map[string]*Model{}
	add := func(prov, model string) *Model {
		name := prov + "/" + model
		if byName[name] == nil {
			s, _ := g.service(prov) // the rehearsal is none, and has no key
			byName[name] = &Model{ModelInfo: g.info(prov, model), Provider: prov, Key: s.keyName, Configured: usable[prov]}
		}
		return byName[name]
	}
	found := g.found(ctx)
	for _, s := range g.services {
		usable[s.name], _ = g.ready(ctx, s)
		if s.meant && s.keyName != "" && !usable[s.name] { // it lists none; somebody may want to give it its key
			add(s.name, every)
		}
		for _, m := range found[s.name] {
			add(s.name, m)
		}
	}
	add(ProviderRehearsal, "plans")
	for name := range g.catalogue.Models {
		prov, model, _ := strings.Cut(name, "/")
		if _, known := g.service(prov); known && model != every {
			add(prov, model)
		}
	}
	named := func(name string) *Model {
		t, err := g.resolve(ctx, name)
		if err != nil {
			return nil
		}
		return add(t.provider, t.model)
	}
	if m := named(g.opt.Default); m != nil {
		m.Default, m.Configured = true, true
	}
	for role, name := range g.opt.Roles {
		if m := named(name); m != nil && name != "" {
			m.Roles = append(m.Roles, role)
		}
	}
	for _, alias := range g.aliases() {
		if to, err := g.names(alias); err == nil && len(to) == 1 && !strings.HasSuffix(to[0], "/"+every) {
			prov, model, _ := strings.Cut(to[0], "/")
			m := add(prov, model)
			m.Aliases = append(m.Aliases, alias)
		} else if m := named(alias); m != nil {
			m.Aliases = append(m.Aliases, alias)
		}
	}
	out := make([]Model, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name].Roles)
		out = append(out, *byName[name])
	}
	return out
}

// Choosable lists the names under which a scope's next prompt can have a model, aliases first: of models that can be called
// now, and that its budgets can bound. The rehearsal is none. There are at most 60.
func (g *Gateway) Choosable(ctx context.Context, s Scope) []string {
	var aliases, names []string
	for _, m := range g.Models(ctx) {
		if !m.Configured || m.Provider == ProviderRehearsal {
			continue
		}
		s.Model = m.Name
		if _, _, err := g.Usable(ctx, s); err != nil {
			continue
		}
		aliases, names = append(aliases, m.Aliases...), append(names, m.Name)
	}
	slices.Sort(aliases)
	out := append(slices.Compact(aliases), names...)
	return out[:min(len(out), 60)]
}

// TestResult is the result of a test call.
type TestResult struct {
	Model     string         `json:"model"`
	OK        bool           `json:"ok"`
	Text      string         `json:"text,omitempty"`
	Error     string         `json:"error,omitempty"`
	Code      string         `json:"code,omitempty"` // of the error
	LatencyMS int64          `json:"latency_ms"`
	Usage     contract.Usage `json:"usage"`
}

// Test calls a model once with a few words. The call belongs to no computer; it
// counts against the day's and the owner's budget like any other, and its usage
// is in the result.
func (g *Gateway) Test(ctx context.Context, name string) TestResult {
	start := g.now()
	res := TestResult{Model: name}
	turn, m, err := g.turn(ctx, Scope{Role: "test", Model: name}, contract.TurnRequest{
		Messages:  []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "Answer with the one word: ready"}}}},
		MaxTokens: 1024, Effort: contract.EffortNone,
	}, reader{})
	res.LatencyMS, res.Usage = max(0, g.now().Sub(start).Milliseconds()), m.Usage
	if m.Provider != "" {
		res.Model = m.Provider + "/" + m.Model
	}
	if err != nil {
		res.Error = err.Error()
		if te, ok := errors.AsType[*contract.TurnError](err); ok {
			res.Code = te.Code
		}
		return res
	}
	res.OK = true
	for _, p := range turn.Message.Parts {
		res.Text += p.Text
	}
	if len(res.Text) > 200 {
		res.Text = strings.ToValidUTF8(res.Text[:200], "")
	}
	return res
}
