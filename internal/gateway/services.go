package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/anthropic"
	"choir.dev/choiros/internal/gateway/openai"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/lazy"
)

// These are the names of the providers that need no configuration but a key.
const (
	ProviderAnthropic = "anthropic"
	ProviderOpenAI    = "openai"    // or any compatible service at OpenAIBaseURL
	ProviderZai       = "zai"       // Z.ai: GLM
	ProviderKimi      = "kimi"      // Moonshot AI: Kimi
	ProviderBedrock   = "bedrock"   // Claude on Amazon Bedrock
	ProviderOllama    = "ollama"    // a model server on this machine
	ProviderLlamaCpp  = "llamacpp"  // llama.cpp's server, on this machine
	ProviderRehearsal = "rehearsal" // plans from files, no model
)

// aliasLocal is the alias, and as local/MODEL the prefix, that stands for the model servers found on this machine.
const aliasLocal = "local"

// These are the names of keys in the environment and in the vault.
const (
	KeyAnthropic = "ANTHROPIC_API_KEY"
	KeyOpenAI    = "OPENAI_API_KEY"
	KeyZai       = "ZAI_API_KEY"
	KeyKimi      = "MOONSHOT_API_KEY"
	KeyBedrock   = "AWS_BEARER_TOKEN_BEDROCK" // instead of AWS's credentials, which sign each request
)

// These are the addresses at which the usual model servers of a machine listen.
const (
	OllamaBaseURL   = "http://127.0.0.1:11434/v1/"
	LlamaCppBaseURL = "http://127.0.0.1:8080/v1/"
)

// Wire is the name of a wire format.
type Wire string

// The wire formats.
const (
	WireAnthropic Wire = "anthropic" // Anthropic's Messages
	WireChat      Wire = "chat"      // OpenAI's chat completions
	WireResponses Wire = "responses" // OpenAI's Responses
	wireBedrock   Wire = "bedrock"   // Messages as Amazon Bedrock speaks it, which only its provider does
)

// Wires lists the wire formats that a configuration can name.
func Wires() []string {
	return []string{string(WireAnthropic), string(WireChat), string(WireResponses)}
}

// Service is what a configuration says of a provider. Of one that is built in, what is empty stays as it is.
type Service struct {
	BaseURL string // checked; "" is the vendor's own, which only built-in providers have
	Key     string // the name of its key in the environment and in the vault; "" of one that is not built in: it needs none
	Wire    Wire   // "" is the usual one: the built-in provider's, or chat
	Region  string // of AWS, for bedrock alone; "" is where AWS's programs look
}

// service is a provider as it is called: a wire format, an address, a key, and how it departs from the format.
type service struct {
	name    string
	keyName string
	wire    Wire
	told    bool // the configuration says which wire
	base    string
	custom  bool // the base URL is not the vendor's own
	here    bool // a server on this machine, which is looked for rather than configured
	off     bool // it is not looked for
	meant   bool // the configuration names it
	bearer  bool // wants its key as a bearer token in Anthropic's format too
	dialect provider.Dialect
	bases   map[Wire]string // the vendor's addresses
	signs   bool            // requests are signed with AWS's credentials if it has no key
	region  string
}

// vendors are the providers that are known, in the order in which they are chosen by themselves.
func vendors() []service {
	return []service{
		{name: ProviderAnthropic, keyName: KeyAnthropic, wire: WireAnthropic, bases: map[Wire]string{WireAnthropic: anthropic.BaseURL}},
		{name: ProviderOpenAI, keyName: KeyOpenAI, wire: WireChat, bases: map[Wire]string{WireChat: openai.BaseURL, WireResponses: openai.BaseURL}},
		{
			name: ProviderZai, keyName: KeyZai, wire: WireChat, bearer: true,
			bases:   map[Wire]string{WireChat: "https://api.z.ai/api/paas/v4/", WireAnthropic: "https://api.z.ai/api/anthropic/"},
			dialect: provider.Dialect{Reasoning: "reasoning_content"},
		},
		{
			name: ProviderKimi, keyName: KeyKimi, wire: WireChat, bearer: true,
			bases:   map[Wire]string{WireChat: "https://api.moonshot.ai/v1/", WireAnthropic: "https://api.moonshot.ai/anthropic/"},
			dialect: provider.Dialect{Reasoning: "reasoning_content", ReasoningAlways: true},
		},
		{name: ProviderBedrock, keyName: KeyBedrock, wire: wireBedrock, signs: true, bases: map[Wire]string{}},
		{name: ProviderOllama, wire: WireChat, here: true, bases: map[Wire]string{WireChat: OllamaBaseURL}},
		{name: ProviderLlamaCpp, wire: WireChat, here: true, bases: map[Wire]string{WireChat: LlamaCppBaseURL}},
	}
}

var (
	providerName = lazy.Regexp(`^[a-z][a-z0-9_-]{0,31}$`)
	keyName      = lazy.Regexp(`^[A-Z][A-Z0-9_]{0,99}$`)
)

// Check reports what of a provider's configuration can't be.
func (s Service) Check(name string) error {
	_, known := find(vendors(), name)
	switch {
	case !providerName().MatchString(name) || name == aliasLocal || name == ProviderRehearsal:
		return fmt.Errorf("%q is no name for a provider: it is of lower-case letters, digits, _ and -, and not %s or %s", short(name), aliasLocal, ProviderRehearsal)
	case s.Wire != "" && !slices.Contains(Wires(), string(s.Wire)):
		return fmt.Errorf("wire is %q; it is one of %s", short(string(s.Wire)), strings.Join(Wires(), ", "))
	case s.Key != "" && !keyName().MatchString(s.Key):
		return fmt.Errorf("key is %q; it is the name under which the key is kept, such as ACME_API_KEY, and never the key itself", redactedKey(s.Key))
	case s.Region != "" && (name != ProviderBedrock || !anthropic.Region(s.Region)):
		return fmt.Errorf("region is %q; %s has one, such as eu-central-1", short(s.Region), ProviderBedrock)
	case s.Wire != "" && name == ProviderBedrock:
		return errors.New("it has a wire of its own")
	case !known && s.BaseURL == "":
		return errors.New("it has no base_url, and none is known")
	}
	if s.BaseURL != "" {
		if _, err := validBase(s.BaseURL); err != nil {
			return fmt.Errorf("base_url: %w", err)
		}
	}
	return nil
}

// redactedKey is the beginning of what was given as a key's name, which may be the key.
func redactedKey(s string) string { return s[:min(len(s), 4)] + "…" }

// KeyNames lists the names of the keys that providers have, and of AWS's variables that hold what must not be told.
func (g *Gateway) KeyNames() []string {
	out := []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
	for _, s := range g.services {
		if s.keyName != "" && !slices.Contains(out, s.keyName) {
			out = append(out, s.keyName)
		}
	}
	return out
}

func find(all []service, name string) (service, bool) {
	i := slices.IndexFunc(all, func(s service) bool { return s.name == name })
	if i < 0 {
		return service{}, false
	}
	return all[i], true
}

// services puts together what is built in and what is configured. Those that are configured come behind those that are
// built in, by their names, and before the servers of this machine.
func services(opt Options) ([]service, error) {
	configured := maps.Clone(opt.Providers)
	if configured == nil {
		configured = map[string]Service{}
	}
	for name, base := range map[string]string{ProviderAnthropic: opt.AnthropicBaseURL, ProviderOpenAI: opt.OpenAIBaseURL} {
		if s := configured[name]; base != "" && s.BaseURL == "" {
			s.BaseURL = base
			configured[name] = s
		}
	}
	if s := configured[ProviderOllama]; opt.LocalBaseURL != "" && opt.LocalBaseURL != "none" && s.BaseURL == "" {
		s.BaseURL = opt.LocalBaseURL
		configured[ProviderOllama] = s
	}
	known := vendors()
	var remote, here []service
	for _, s := range known {
		if s.here {
			here = append(here, s)
		} else {
			remote = append(remote, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if _, ok := find(known, name); !ok {
			remote = append(remote, service{name: name, wire: WireChat})
		}
	}
	all := append(remote, here...)
	for i := range all {
		c, ok := configured[all[i].name]
		if all[i].off = all[i].here && opt.LocalBaseURL != "" && c.BaseURL == ""; all[i].off {
			continue
		}
		if ok {
			if err := c.Check(all[i].name); err != nil {
				return nil, fault.New("gateway.New", fault.Invalid, "Correct it below [models.providers."+short(all[i].name)+"]; docs/models.md says what a provider has.", fmt.Errorf("provider %s: %w", all[i].name, err))
			}
		}
		all[i].meant = ok
		if err := all[i].configure(c); err != nil {
			return nil, fault.New("gateway.New", fault.Invalid, "Set its base_url too.", fmt.Errorf("provider %s: %w", all[i].name, err))
		}
	}
	return all, nil
}

// configure sets what a configuration, which was checked, says of the service.
func (s *service) configure(c Service) error {
	s.told = c.Wire != ""
	s.wire = cmp.Or(c.Wire, s.wire)
	s.keyName = cmp.Or(c.Key, s.keyName)
	s.base, s.custom, s.region = c.BaseURL, c.BaseURL != "", c.Region
	if s.signs && !s.custom {
		return nil // the address is its region's
	}
	if !s.custom {
		if s.base = s.bases[s.wire]; s.base == "" {
			return fmt.Errorf("no address is known at which it speaks %s", s.wire)
		}
	}
	var err error
	s.base, err = validBase(s.base)
	return err
}

// needsKey reports whether the service can't be called without a key.
func (s service) needsKey() bool {
	return s.keyName != "" && !(s.custom && s.vendor()) && !s.here && !s.signs
}

// lists reports whether the service can be asked for its models.
func (s service) lists() bool { return s.wire == WireChat || s.wire == WireResponses }

// vendor reports whether the service is one that is built in.
func (s service) vendor() bool { return s.bases != nil }

// service returns the service with a name.
func (g *Gateway) service(name string) (service, bool) { return find(g.services, name) }

// key returns a provider's key, after a check that it can be put into a header.
func (g *Gateway) key(ctx context.Context, s service) (string, error) {
	if s.keyName == "" || g.opt.Keys == nil {
		return "", nil
	}
	key, err := g.opt.Keys(ctx, s.keyName)
	if err != nil {
		return "", turnError(provider.CodeUnavailable, "the key "+s.keyName+" could not be read: "+err.Error(), true)
	}
	key = strings.TrimSpace(key)
	if len(key) > 4096 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", turnError(provider.CodeInvalid, "the key "+s.keyName+" has characters that no key has; set it again", false)
	}
	return key, nil
}

// ready reports whether a service can be called now: whether it has its key, or was found on this machine. AWS's credentials
// are not looked for, since a machine may have them for anything: that the configuration names the provider is what counts.
func (g *Gateway) ready(ctx context.Context, s service) (bool, error) {
	if s.here {
		return len(g.found(ctx)[s.name]) > 0, nil
	}
	key, err := g.key(ctx, s)
	return err == nil && (key != "" || !s.needsKey() && (!s.signs || s.meant)), err
}
