package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/provider"
)

// target is a model that can be called.
type target struct {
	provider string
	model    string
	impl     provider.Provider
	base     string
	region   string
	key      string
	bearer   bool
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

// Choice names models: for each role, and for those that have none of their own. It is for where nobody named one for a run.
type Choice struct {
	Default string
	Roles   map[string]string // director, associate
}

func (c Choice) of(role string) string {
	if name := c.Roles[role]; name != "" {
		return name
	}
	return c.Default
}

// Names lists the models that it names.
func (c Choice) Names() []string {
	out := slices.Sorted(maps.Values(c.Roles))
	return slices.DeleteFunc(append([]string{c.Default}, out...), func(name string) bool { return name == "" })
}

// chosen is the model that a scope's loop uses when neither the host nor the loop names one: its computer's choice, else
// the owner's; "" if there is none.
func (g *Gateway) chosen(s Scope) string {
	if name := s.Choice.of(s.Role); name != "" {
		return name
	}
	return Choice{Default: g.opt.Default, Roles: g.opt.Roles}.of(s.Role)
}

// every is the model of PROVIDER/*: the first that its service lists.
const every = "*"

// names returns the models that a name stands for, in the order in which they are tried: itself, an alias's, or, of a bare
// model name, the catalogue's. It makes no request.
func (g *Gateway) names(name string) ([]string, error) { return g.expand(name, 5) }

func (g *Gateway) expand(name string, depth int) ([]string, error) {
	if to, ok := g.catalogue.Aliases[name]; ok {
		if depth == 0 {
			return nil, fmt.Errorf("the alias %q leads to itself", short(name))
		}
		var out []string
		for _, n := range to {
			more, err := g.expand(n, depth-1)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
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
			return nil, fmt.Errorf("model %q is not provider/model and no known alias (%s)", short(name), strings.Join(g.aliases(), ", "))
		}
		name = found[0]
		prov, model, _ = strings.Cut(name, "/")
	}
	if prov == aliasLocal {
		var out []string
		for _, s := range g.services {
			if s.here {
				out = append(out, s.name+"/"+model)
			}
		}
		return out, nil
	}
	if _, known := g.service(prov); !known && prov != ProviderRehearsal || model == "" || strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, fmt.Errorf("model %q: the provider is not one of %s, or the model's name is malformed; a provider that was configured meanwhile counts once choir is started again", short(name), strings.Join(g.providerNames(), ", "))
	}
	return []string{name}, nil
}

func (g *Gateway) providerNames() []string {
	var out []string
	for _, s := range g.services {
		out = append(out, s.name)
	}
	return append(out, ProviderRehearsal)
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

func (g *Gateway) aliases() []string { return slices.Sorted(maps.Keys(g.catalogue.Aliases)) }

// pick returns the first of the models that a name stands for whose provider can be called. A single one is returned in any
// case: what it lacks is told by target.
func (g *Gateway) pick(ctx context.Context, name string) (string, error) {
	names, err := g.names(name)
	if err != nil {
		return "", turnError(provider.CodeNoModel, err.Error(), false)
	}
	if len(names) == 1 {
		return names[0], nil
	}
	var missing []string
	for _, n := range names {
		prov, model, _ := strings.Cut(n, "/")
		s, ok := g.service(prov)
		if !ok {
			return n, nil // the rehearsal
		}
		ready, err := g.ready(ctx, s)
		switch {
		case err != nil:
			return "", err
		case ready && s.here && model != every && !slices.Contains(g.found(ctx)[prov], model):
		case ready:
			return n, nil
		case s.keyName != "" && !slices.Contains(missing, s.keyName):
			missing = append(missing, s.keyName)
		}
	}
	how := "start a model server on this machine that has it"
	if len(missing) > 0 {
		how = "run `choir secrets set` for one of " + strings.Join(missing, ", ") + ", or start a model server on this machine"
	}
	return "", turnError(provider.CodeNoModel, fmt.Sprintf("%s stands for %s, of which none can be called: %s", short(name), strings.Join(names, ", "), how), false)
}

// resolve finds the model with a name; "" is the first provider that can be called by itself, else a model server on this
// machine, else the rehearsal.
func (g *Gateway) resolve(ctx context.Context, name string) (target, error) {
	var err error
	if name == "" {
		name, err = g.choose(ctx)
	} else {
		name, err = g.pick(ctx, name)
	}
	if err != nil {
		return target{}, err
	}
	return g.target(ctx, name)
}

// target returns the model with a whole name.
func (g *Gateway) target(ctx context.Context, name string) (target, error) {
	prov, model, _ := strings.Cut(name, "/")
	if prov == ProviderRehearsal {
		return target{provider: prov, model: model, impl: g.plans, info: g.info(prov, model)}, nil
	}
	s, _ := g.service(prov)
	if s.off {
		return target{}, turnError(provider.CodeNoModel, "no address is configured for provider "+prov, false)
	}
	key, err := g.key(ctx, s)
	if err != nil {
		return target{}, err
	}
	if key == "" && s.needsKey() {
		return target{}, turnError(provider.CodeNoModel, fmt.Sprintf("model %s needs a key: run `choir secrets set %s`, or set it in the environment", name, s.keyName), false)
	}
	if model == every {
		if model, err = g.first(ctx, s); err != nil {
			return target{}, err
		}
	}
	base, region := s.base, s.region
	if s.signs && (base == "" || region == "" && key == "") {
		there, in, err := g.bedrock.Base(ctx, region)
		if err != nil {
			return target{}, turnError(provider.CodeNoModel, "model "+name+" needs a region: "+err.Error(), false)
		}
		if region = in; base == "" {
			base = there
		}
	}
	info := g.info(prov, model)
	return target{provider: prov, model: model, impl: g.wires[g.wire(s, info)], base: base, region: region, key: key, bearer: s.bearer, info: info, dialect: s.dialect}, nil
}

// wire is the format in which a model is called: the one that is configured, else the catalogue's at the vendor's own
// address, else the provider's.
func (g *Gateway) wire(s service, info ModelInfo) Wire {
	if !s.told && !s.custom && info.Wire != "" && s.bases[info.Wire] == s.base {
		return info.Wire
	}
	return s.wire
}

// first returns the first model that a service lists; every, where only what is known counts, while that is not.
func (g *Gateway) first(ctx context.Context, s service) (string, error) {
	var models []string
	var err error
	if s.here {
		models = g.found(ctx)[s.name]
	} else if s.lists() {
		models, err = g.models(ctx, s)
	}
	if len(models) == 0 && onlyKnown(ctx) {
		return every, nil
	}
	switch {
	case err != nil:
		return "", turnError(provider.CodeNoModel, fmt.Sprintf("the models of %s could not be listed; name one of its models, as %s/MODEL, in the prompt or as models.default: %v", s.name, s.name, err), true)
	case len(models) == 0 && s.here:
		return "", turnError(provider.CodeNoModel, fmt.Sprintf("no model server was found at %s; start one, or set models.providers.%s.base_url", s.base, s.name), false)
	case len(models) == 0:
		return "", turnError(provider.CodeNoModel, fmt.Sprintf("%s lists no models; name one of its models, as %s/MODEL, in the prompt or as models.default", s.name, s.name), false)
	}
	return models[0], nil
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

// choose picks a model when none is named. Of a service at an address of one's own only the service knows which models
// it has.
func (g *Gateway) choose(ctx context.Context) (string, error) {
	for _, s := range g.services {
		ready, err := g.ready(ctx, s)
		switch {
		case err != nil:
			return "", err
		case !ready:
		case g.catalogue.Defaults[s.name] == "" || s.custom && s.lists():
			return s.name + "/" + every, nil
		default:
			return g.catalogue.Defaults[s.name], nil
		}
	}
	return "rehearsal/plans", nil
}

// Resolve returns the provider and model that a scope's loop uses when no turn asks for another. It fails with fault.Missing
// when that model can't be called.
func (g *Gateway) Resolve(ctx context.Context, s Scope) (providerName, model string, err error) {
	name := s.Model
	if name == "" {
		name = g.chosen(s)
	}
	t, err := g.resolve(ctx, name)
	if err != nil {
		return "", "", fault.New("gateway.Resolve", fault.Missing, "Choose another with --model, or see: choir models", err)
	}
	return t.provider, t.model, nil
}

// Usable returns what Resolve does, and fails like it when a budget in money that bounds the scope could not bound that
// model's calls, since it has no price.
func (g *Gateway) Usable(ctx context.Context, s Scope) (providerName, model string, err error) {
	name := s.Model
	if name == "" {
		name = g.chosen(s)
	}
	t, err := g.resolve(ctx, name)
	if err == nil {
		err = g.bounds(s, t)
	}
	if err != nil {
		return "", "", fault.New("gateway.Usable", fault.Missing, "Choose another; choir models lists them.", err)
	}
	return t.provider, t.model, nil
}

// bounds reports that a budget in money can't bound a model.
func (g *Gateway) bounds(s Scope, t target) error {
	levels := g.levels(s)
	for _, l := range levels {
		if l.budget.CostUSD > 0 && !t.info.Priced && !t.info.free() {
			return unpriced(t, l, levels)
		}
	}
	return nil
}

// Window returns how many tokens a scope's model reads at once, by the catalogue; 0 when that is not known.
func (g *Gateway) Window(ctx context.Context, s Scope) int {
	name := s.Model
	if name == "" {
		name = g.chosen(s)
	}
	t, err := g.resolve(ctx, name)
	if err != nil {
		return 0
	}
	return t.info.Context
}

// Efforts are those that a scope's model can be asked for; none if it can't be told, or can't be called.
func (g *Gateway) Efforts(ctx context.Context, s Scope) []contract.Effort {
	name := s.Model
	if name == "" {
		name = g.chosen(s)
	}
	t, err := g.resolve(ctx, name)
	if err != nil {
		return nil
	}
	return t.info.abilities().Has()
}

// checkNames checks the models that the configuration names.
func (g *Gateway) checkNames() error {
	bad := func(setting string, err error) error {
		return fault.New("gateway.New", fault.Invalid, "Set "+setting+" to provider/model, such as "+g.catalogue.Defaults[ProviderAnthropic]+", or to an alias; see: choir models", err)
	}
	if g.opt.Default != "" {
		if _, err := g.names(g.opt.Default); err != nil {
			return bad("models.default (or CHOIR_MODEL)", err)
		}
	}
	for role, name := range g.opt.Roles {
		if role != "director" && role != "associate" {
			return bad("models.roles", fmt.Errorf("%q is no role; they are director and associate", short(role)))
		}
		if name != "" {
			if _, err := g.names(name); err != nil {
				return bad("models.roles."+role, err)
			}
		}
	}
	return nil
}

// CheckChoice checks the models that a computer's choice names.
func (g *Gateway) CheckChoice(c Choice) error {
	var errs []error
	for _, name := range c.Names() {
		if _, err := g.names(name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
