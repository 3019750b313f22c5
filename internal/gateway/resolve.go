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
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/provider"
)

// These are the providers' names.
const (
	ProviderAnthropic = "anthropic"
	ProviderOpenAI    = "openai"    // or any compatible service at OpenAIBaseURL
	ProviderLocal     = "local"     // a model server found on this machine
	ProviderRehearsal = "rehearsal" // plans from files, no model
)

// These are the names of keys in the environment and in the vault.
const (
	KeyAnthropic = "ANTHROPIC_API_KEY"
	KeyOpenAI    = "OPENAI_API_KEY"
)

// LocalBaseURL is where Ollama, the usual local model server, listens.
const LocalBaseURL = "http://127.0.0.1:11434/v1/"

const (
	probeTime  = 200 * time.Millisecond
	probeEvery = 10 * time.Second
)

// target is a model that can be called.
type target struct {
	provider string
	model    string
	impl     provider.Provider
	base     string
	key      string
	info     ModelInfo
	dialect  provider.Dialect
}

// Lookup makes a Keys function that asks each source in turn and returns the first key that it
// gets.
func Lookup(sources ...func(ctx context.Context, name string) (string, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		for _, source := range sources {
			if key, err := source(ctx, name); err != nil || key != "" {
				return key, err
			}
		}
		return "", nil
	}
}

// Env returns a source of keys that reads them with getenv, such as os.Getenv.
func Env(getenv func(string) string) func(context.Context, string) (string, error) {
	return func(_ context.Context, name string) (string, error) { return getenv(name), nil }
}

// key returns a provider's key, after a check that it can be put into a header.
func (g *Gateway) key(ctx context.Context, providerName string) (string, error) {
	name := map[string]string{ProviderAnthropic: KeyAnthropic, ProviderOpenAI: KeyOpenAI}[providerName]
	if name == "" || g.opt.Keys == nil {
		return "", nil
	}
	key, err := g.opt.Keys(ctx, name)
	if err != nil {
		return "", turnError(provider.CodeUnavailable, "the key "+name+" could not be read: "+err.Error(), true)
	}
	key = strings.TrimSpace(key)
	if len(key) > 4096 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", turnError(provider.CodeInvalid, "the key "+name+" has characters that no key has; set it again", false)
	}
	return key, nil
}

// split resolves aliases and returns provider and model. A bare model name is
// looked up in the catalogue.
func (g *Gateway) split(name string) (prov, model string, err error) {
	for range 5 {
		to, ok := g.catalogue.Aliases[name]
		if !ok {
			break
		}
		name = to
	}
	prov, model, ok := strings.Cut(name, "/")
	if !ok {
		var found []string
		for full := range g.catalogue.Models {
			if strings.HasSuffix(full, "/"+name) {
				found = append(found, full)
			}
		}
		if len(found) != 1 {
			return "", "", fmt.Errorf("model %q is not provider/model and no known alias (%s)", short(name), strings.Join(g.aliases(), ", "))
		}
		prov, model, _ = strings.Cut(found[0], "/")
	}
	if _, known := g.providers[prov]; !known || model == "" || strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", "", fmt.Errorf("model %q: the provider is not one of %s, %s, %s, %s, or the model's name is malformed", short(name), ProviderAnthropic, ProviderOpenAI, ProviderLocal, ProviderRehearsal)
	}
	return prov, model, nil
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

func (g *Gateway) aliases() []string {
	var out []string
	for a := range g.catalogue.Aliases {
		out = append(out, a)
	}
	sort.Strings(out)
	return out
}

// resolve finds the model to call: the one named, else the configured default,
// else the first provider that has a key or an address of its own, else a model
// server on this machine, else the rehearsal.
func (g *Gateway) resolve(ctx context.Context, name string) (target, error) {
	if name == "" {
		name = g.opt.Default
	}
	if name == "" {
		chosen, err := g.choose(ctx)
		if err != nil {
			return target{}, err
		}
		name = chosen
	}
	prov, model, err := g.split(name)
	if err != nil {
		return target{}, turnError(provider.CodeNoModel, err.Error(), false)
	}
	t := target{provider: prov, model: model, impl: g.providers[prov], base: g.bases[prov]}
	if prov == ProviderRehearsal {
		t.info = g.info(prov, model)
		return t, nil
	}
	if t.base == "" {
		return target{}, turnError(provider.CodeNoModel, "no address is configured for provider "+prov, false)
	}
	if t.key, err = g.key(ctx, prov); err != nil {
		return target{}, err
	}
	if t.key == "" && !g.custom[prov] && prov != ProviderLocal {
		env := map[string]string{ProviderAnthropic: KeyAnthropic, ProviderOpenAI: KeyOpenAI}[prov]
		return target{}, turnError(provider.CodeNoModel, fmt.Sprintf("model %s needs a key: run `choir secrets set %s`, or set it in the environment", name, env), false)
	}
	t.info = g.info(prov, model)
	return t, nil
}

// info returns the catalogue's entry for a model, and otherwise the one for its provider, such as
// local/*.
func (g *Gateway) info(prov, model string) ModelInfo {
	name := prov + "/" + model
	info, ok := g.catalogue.Models[name]
	if all, known := g.catalogue.Models[prov+"/*"]; known && (!ok || !info.Priced) {
		info.PriceIn, info.PriceOut, info.PriceCacheRead, info.PriceCacheWrite = all.PriceIn, all.PriceOut, all.PriceCacheRead, all.PriceCacheWrite
		info.PriceSource, info.PriceDate, info.Priced = all.PriceSource, all.PriceDate, all.Priced
		info.Context, info.MaxOutput = max(info.Context, all.Context), max(info.MaxOutput, all.MaxOutput)
		if !ok {
			info.Abilities = all.Abilities
		}
	}
	info.Name = name
	return info
}

// choose picks a model when none is named.
func (g *Gateway) choose(ctx context.Context) (string, error) {
	for _, prov := range []string{ProviderAnthropic, ProviderOpenAI} {
		key, err := g.key(ctx, prov)
		if err != nil {
			return "", err
		}
		if key == "" && !g.custom[prov] {
			continue
		}
		if prov == ProviderOpenAI && g.custom[prov] {
			// Only the service itself knows which models it has.
			models, err := g.list(ctx, prov, key, 10*time.Second)
			if err != nil {
				return "", turnError(provider.CodeNoModel, "the models of the configured service could not be listed; set CHOIR_MODEL=openai/MODEL: "+err.Error(), true)
			}
			if len(models) == 0 {
				return "", turnError(provider.CodeNoModel, "the configured service lists no models; set CHOIR_MODEL=openai/MODEL", false)
			}
			return prov + "/" + models[0], nil
		}
		return g.catalogue.Defaults[prov], nil
	}
	if models := g.probe(ctx); len(models) > 0 {
		return ProviderLocal + "/" + models[0], nil
	}
	return "rehearsal/plans", nil
}

// probe looks for a model server on this machine, at most every ten seconds.
func (g *Gateway) probe(ctx context.Context) []string {
	if g.bases[ProviderLocal] == "" {
		return nil
	}
	g.local.mu.Lock()
	defer g.local.mu.Unlock()
	if now := g.now(); now.After(g.local.until) {
		models, err := g.list(ctx, ProviderLocal, "", probeTime)
		if err != nil {
			g.opt.Logger.Debug("no model server on this machine", "err", err)
		}
		g.local.models, g.local.until = models, now.Add(probeEvery)
	}
	return g.local.models
}

// list asks a service for its models, in the service's order.
func (g *Gateway) list(ctx context.Context, prov, key string, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.bases[prov]+"models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := g.client(g.bases[prov], nil).Do(req)
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
	Provider   string `json:"provider"`
	Configured bool   `json:"configured"` // whether it can be called now
	Default    bool   `json:"default"`    // whether it is used when no model is named
}

// Models lists the catalogue, the rehearsal and, if nothing else is configured,
// the models of a server on this machine. A key that can't be read counts as not configured.
func (g *Gateway) Models(ctx context.Context) []Model {
	usable := map[string]bool{ProviderRehearsal: true}
	for _, prov := range []string{ProviderAnthropic, ProviderOpenAI} {
		key, err := g.key(ctx, prov)
		usable[prov] = err == nil && (key != "" || g.custom[prov])
	}
	byName := map[string]Model{"rehearsal/plans": {ModelInfo: g.info(ProviderRehearsal, "plans"), Provider: ProviderRehearsal, Configured: true}}
	for name, info := range g.catalogue.Models {
		prov, model, _ := strings.Cut(name, "/")
		if model == "*" {
			continue
		}
		byName[name] = Model{ModelInfo: info, Provider: prov, Configured: usable[prov]}
	}
	var local []string
	if !usable[ProviderAnthropic] && !usable[ProviderOpenAI] {
		local = g.probe(ctx)
	}
	for _, m := range local {
		byName[ProviderLocal+"/"+m] = Model{ModelInfo: g.info(ProviderLocal, m), Provider: ProviderLocal, Configured: true}
	}
	if t, err := g.resolve(ctx, ""); err == nil {
		name := t.provider + "/" + t.model
		m, ok := byName[name]
		if !ok {
			m = Model{ModelInfo: t.info, Provider: t.provider, Configured: true}
		}
		m.Default = true
		byName[name] = m
	}
	out := make([]Model, 0, len(byName))
	for _, m := range byName {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
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

// Resolve returns the provider and model that a name stands for; "" is the default. It fails with
// fault.Missing when that model can't be called.
func (g *Gateway) Resolve(ctx context.Context, name string) (providerName, model string, err error) {
	t, err := g.resolve(ctx, name)
	if err != nil {
		return "", "", fault.New("gateway.Resolve", fault.Missing, "Choose another with --model, or see: choir models", err)
	}
	return t.provider, t.model, nil
}

// Window returns how many tokens a model reads at once, by the catalogue; 0 when that is not known.
func (g *Gateway) Window(ctx context.Context, name string) int {
	t, err := g.resolve(ctx, name)
	if err != nil {
		return 0
	}
	return t.info.Context
}
