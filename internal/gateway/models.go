package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

const (
	probeTime  = 200 * time.Millisecond
	probeEvery = 10 * time.Second
	listTime   = 10 * time.Second
)

// localServers remembers which model servers were found on this machine.
type localServers struct {
	mu     sync.Mutex
	until  time.Time
	models map[string][]string // provider → its models
}

// found looks for model servers on this machine, all at once and at most every ten seconds, and returns the models of those
// that answer.
func (g *Gateway) found(ctx context.Context) map[string][]string {
	g.local.mu.Lock()
	defer g.local.mu.Unlock()
	now := g.now()
	if !now.After(g.local.until) {
		return g.local.models
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	models := map[string][]string{}
	for _, s := range g.services {
		if !s.here || s.off {
			continue
		}
		all.Go(func() {
			key, err := g.key(ctx, s)
			if err != nil {
				return // it is told when one of its models is called
			}
			list, err := g.list(ctx, s, key, probeTime)
			if err != nil {
				g.opt.Logger.Debug("no model server on this machine", "provider", s.name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			models[s.name] = list
		})
	}
	all.Wait()
	g.local.models, g.local.until = models, now.Add(probeEvery)
	return models
}

// list asks a service for its models, in the service's order.
func (g *Gateway) list(ctx context.Context, s service, key string, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := g.client(s.base, nil).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, errors.New("the answer is not a list of models")
	}
	var out []string
	for _, m := range answer.Data {
		if m.ID != "" && len(m.ID) <= 150 && len(out) < 500 && !slices.Contains(out, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out, nil
}

// Model is one model that a person can choose.
type Model struct {
	ModelInfo
	Provider   string   `json:"provider"`
	Configured bool     `json:"configured"`        // whether it can be called now
	Default    bool     `json:"default"`           // whether it is used when no model is named
	Roles      []string `json:"roles,omitempty"`   // those that use it when no model is named
	Aliases    []string `json:"aliases,omitempty"` // those that stand for it now
}

// Models lists the catalogue, the rehearsal and the models of servers on this machine. A key that can't be read counts as
// not configured.
func (g *Gateway) Models(ctx context.Context) []Model {
	usable := map[string]bool{ProviderRehearsal: true}
	byName := map[string]*Model{}
	add := func(prov, model string) *Model {
		name := prov + "/" + model
		if byName[name] == nil {
			byName[name] = &Model{ModelInfo: g.info(prov, model), Provider: prov, Configured: usable[prov]}
		}
		return byName[name]
	}
	for _, s := range g.services {
		usable[s.name], _ = g.ready(ctx, s)
		for _, m := range g.found(ctx)[s.name] {
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
	for _, m := range byName {
		sort.Strings(m.Roles)
		out = append(out, *m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Choosable lists the names under which a scope's next prompt can have a model, aliases first: of models that can be called
// now, and that its budgets can bound. The rehearsal is none. There are at most 60.
func (g *Gateway) Choosable(ctx context.Context, s Scope) []string {
	const most = 60
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
	return out[:min(len(out), most)]
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
	res.LatencyMS = max(0, g.now().Sub(start).Milliseconds())
	res.Usage = m.Usage
	if m.Provider != "" {
		res.Model = m.Provider + "/" + m.Model
	}
	if err != nil {
		res.Error = err.Error()
		var te *contract.TurnError
		if errors.As(err, &te) {
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
