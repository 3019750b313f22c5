package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// TestProvidersAreAWireAnAddressAndAKey: each provider is called in its format, at its address, with its key where its
// service looks for it, and with what its service wants beside the format.
func TestProvidersAreAWireAnAddressAndAKey(t *testing.T) {
	back := say("go on")
	back.Messages = append(back.Messages,
		contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{
			{Reasoning: &contract.Reasoning{Provider: "kimi", Text: "I thought of kimi"}}, {Reasoning: &contract.Reasoning{Provider: "zai", Text: "I thought of zai"}},
			{Call: &contract.ToolCall{ID: "c", Name: "read", Args: []byte("{}")}}}},
		contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "x"}}}})
	for _, c := range []struct {
		name, model string
		service     gateway.Service
		keys        map[string]string
		path, key   string
		header      string // in which the key is
		sent, not   string
	}{
		{name: "Z.ai", model: "zai/glm-5.2", keys: map[string]string{gateway.KeyZai: "key-of-zai"}, path: "/v1/chat/completions", key: "key-of-zai", header: "Authorization",
			sent: `"reasoning_content":"I thought of zai"`, not: "thought of kimi"},
		{name: "Z.ai in Anthropic's format", model: "zai/glm-5.2", service: gateway.Service{Wire: gateway.WireAnthropic}, keys: map[string]string{gateway.KeyZai: "key-of-zai"},
			path: "/v1/messages", key: "key-of-zai", header: "Authorization", sent: `"max_tokens":500`, not: "reasoning_content"},
		{name: "Kimi", model: "kimi/kimi-k2.6", keys: map[string]string{gateway.KeyKimi: "key-of-kimi"}, path: "/v1/chat/completions", key: "key-of-kimi", header: "Authorization",
			sent: `"reasoning_content":"I thought of kimi"`, not: "thought of zai"},
		{name: "one of the owner's", model: "acme/large", service: gateway.Service{Key: "ACME_API_KEY"}, keys: map[string]string{"ACME_API_KEY": "key-of-acme"},
			path: "/v1/chat/completions", key: "key-of-acme", header: "Authorization", sent: `"model":"large"`, not: "reasoning_content"},
		{name: "one of the owner's without a key", model: "acme/large", path: "/v1/chat/completions", sent: `"model":"large"`},
		{name: "one of the owner's in Anthropic's format", model: "acme/large", service: gateway.Service{Key: "ACME_API_KEY", Wire: gateway.WireAnthropic}, keys: map[string]string{"ACME_API_KEY": "key-of-acme"},
			path: "/v1/messages", key: "key-of-acme", header: "X-Api-Key", sent: `"model":"large"`},
		{name: "Ollama", model: "ollama/qwen", path: "/v1/chat/completions", sent: `"model":"qwen"`},
		{name: "llama.cpp", model: "llamacpp/qwen", path: "/v1/chat/completions", sent: `"model":"qwen"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "hello"}}}).Start()
			defer s.Close()
			prov, model, _ := strings.Cut(c.model, "/")
			if c.service.BaseURL = s.OpenAIURL(); c.service.Wire == gateway.WireAnthropic {
				c.service.BaseURL = s.URL()
			}
			g := build(t, gateway.Options{Providers: map[string]gateway.Service{prov: c.service}, Keys: keys(c.keys)})
			sc := scope()
			sc.Model = c.model
			turn, err := g.Turn(t.Context(), sc, back, nil)
			if err != nil || turn.Provider != prov || turn.Model != model {
				t.Fatalf("%s/%s: %v", turn.Provider, turn.Model, err)
			}
			r := s.Requests()[0]
			if r.Path != c.path || r.Key != c.key || c.key != "" && !strings.HasSuffix(r.Header.Get(c.header), c.key) {
				t.Errorf("path %s, key %q, header %q", r.Path, r.Key, r.Header.Get(c.header))
			}
			if body := string(r.Body); !strings.Contains(body, c.sent) || c.not != "" && strings.Contains(body, c.not) {
				t.Errorf("sent %s", body)
			}
		})
	}
}

// TestKeysHaveNames: whoever keeps keys out of what is recorded is told all their names.
func TestKeysHaveNames(t *testing.T) {
	g := build(t, gateway.Options{Providers: map[string]gateway.Service{"acme": {BaseURL: "https://acme.example", Key: "ACME_API_KEY"}, "zai": {Key: "OTHER_ZAI_KEY"}}})
	got := g.KeyNames()
	for _, want := range []string{gateway.KeyAnthropic, gateway.KeyOpenAI, gateway.KeyKimi, gateway.KeyBedrock, "ACME_API_KEY", "OTHER_ZAI_KEY", "AWS_SECRET_ACCESS_KEY"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among %v", want, got)
		}
	}
}

// TestKimiWantsReasoningWithEveryCall: its service refuses a call of another model's turn without the field.
func TestKimiWantsReasoningWithEveryCall(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "hello"}}}).Start()
	defer s.Close()
	g := build(t, gateway.Options{Providers: map[string]gateway.Service{"kimi": {BaseURL: s.OpenAIURL()}}})
	sc, req := scope(), say("go on")
	sc.Model = "kimi/kimi-k2.6"
	req.Messages = append(req.Messages,
		contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "read", Args: []byte("{}")}}}},
		contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "x"}}}})
	if _, err := g.Turn(t.Context(), sc, req, nil); err != nil {
		t.Fatal(err)
	}
	if body := string(s.Requests()[0].Body); !strings.Contains(body, `"reasoning_content":" "`) {
		t.Errorf("sent %s", body)
	}
}

// reached is a transport that takes every request, whatever its address, to one server, and notes the address.
type reached struct {
	to  *url.URL
	was []string
}

func (r *reached) RoundTrip(req *http.Request) (*http.Response, error) {
	r.was = append(r.was, req.URL.String())
	there := req.Clone(req.Context())
	there.URL.Scheme, there.URL.Host = r.to.Scheme, r.to.Host
	if i := strings.Index(there.URL.Path, "/v1/messages"); i >= 0 {
		there.URL.Path = there.URL.Path[i:]
	} else if i := strings.LastIndex(there.URL.Path, "/chat/"); i >= 0 {
		there.URL.Path = "/v1" + there.URL.Path[i:]
	}
	return http.DefaultTransport.RoundTrip(there)
}

// elsewhere builds a gateway whose services are all played by one server, at the vendors' own addresses.
func elsewhere(t *testing.T, s *modelserver.Server, opt gateway.Options) (*gateway.Gateway, *reached) {
	t.Helper()
	to, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := &reached{to: to}
	opt.HTTPClient = &http.Client{Transport: r}
	return build(t, opt), r
}

// TestTheVendorsAddresses: what is not configured is at the vendor's address for the format.
func TestTheVendorsAddresses(t *testing.T) {
	for _, c := range []struct {
		model string
		wire  gateway.Wire
		want  string
	}{
		{"zai/glm-5.2", "", "https://api.z.ai/api/paas/v4/chat/completions"},
		{"zai/glm-5.2", gateway.WireAnthropic, "https://api.z.ai/api/anthropic/v1/messages"},
		{"kimi/kimi-k2.6", "", "https://api.moonshot.ai/v1/chat/completions"},
		{"kimi/kimi-k2.6", gateway.WireAnthropic, "https://api.moonshot.ai/anthropic/v1/messages"},
		{"anthropic/claude-sonnet-4-6", "", "https://api.anthropic.com/v1/messages"},
	} {
		s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "hello"}}}).Start()
		prov, _, _ := strings.Cut(c.model, "/")
		opt := gateway.Options{Keys: func(context.Context, string) (string, error) { return "key-123456", nil }}
		if c.wire != "" {
			opt.Providers = map[string]gateway.Service{prov: {Wire: c.wire}}
		}
		g, r := elsewhere(t, s, opt)
		sc := scope()
		sc.Model = c.model
		if _, err := g.Turn(t.Context(), sc, say("x"), nil); err != nil || len(r.was) != 1 || r.was[0] != c.want {
			t.Errorf("%s: asked at %v, want %s: %v", c.model, r.was, c.want, err)
		}
		s.Close()
	}
	for _, wire := range []gateway.Wire{gateway.WireAnthropic} {
		if _, err := gateway.New(gateway.Options{Logger: quiet(), Providers: map[string]gateway.Service{"openai": {Wire: wire}}}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no address is known") {
			t.Errorf("a format that the vendor does not speak: %v", err)
		}
	}
}

// TestProvidersThatCantBe are refused with the name of the provider and of what is wrong, and never with a key.
func TestProvidersThatCantBe(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		service  gateway.Service
		want     string
	}{
		"no address":          {"acme", gateway.Service{Key: "ACME_API_KEY"}, "base_url"},
		"an address in clear": {"acme", gateway.Service{BaseURL: "http://acme.example/v1"}, "plain http"},
		"a link-local one":    {"zai", gateway.Service{BaseURL: "http://169.254.169.254/"}, "169.254.169.254"},
		"an unknown format":   {"acme", gateway.Service{BaseURL: "https://acme.example", Wire: "soap"}, "wire"},
		"a key for its name":  {"acme", gateway.Service{BaseURL: "https://acme.example", Key: canary}, "never the key itself"},
		"a name of ours":      {"rehearsal", gateway.Service{BaseURL: "https://acme.example"}, "no name for a provider"},
		"an alias of ours":    {"local", gateway.Service{BaseURL: "https://acme.example"}, "no name for a provider"},
		"a name with a slash": {"a/b", gateway.Service{BaseURL: "https://acme.example"}, "no name for a provider"},
	} {
		_, err := gateway.New(gateway.Options{Logger: quiet(), Providers: map[string]gateway.Service{c.provider: c.service}})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.provider) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error()+fault.HintOf(err), canary) {
			t.Errorf("%s: the key is told: %v", name, err)
		}
	}
}

// TestWhichProviderIsChosen: by the order of those that are built in, then by name, then what runs on this machine.
func TestWhichProviderIsChosen(t *testing.T) {
	s := modelserver.New(modelserver.Script{}).Start()
	defer s.Close()
	acme := map[string]gateway.Service{"acme": {BaseURL: s.OpenAIURL(), Key: "ACME_API_KEY"}}
	for _, c := range []struct {
		name string
		opt  gateway.Options
		want string
	}{
		{"Z.ai's key", gateway.Options{Keys: keys(map[string]string{gateway.KeyZai: "key-1234", gateway.KeyKimi: "key-1234"})}, "zai/glm-5.2"},
		{"Kimi's", gateway.Options{Keys: keys(map[string]string{gateway.KeyKimi: "key-1234"}), Providers: acme}, "kimi/kimi-k2.6"},
		{"one of the owner's says what it has", gateway.Options{Keys: keys(map[string]string{"ACME_API_KEY": "key-1234"}), Providers: acme, LocalBaseURL: s.OpenAIURL()}, "acme/script-1"},
		{"one of the owner's whose key is missing", gateway.Options{Providers: acme, LocalBaseURL: s.OpenAIURL()}, "ollama/script-1"},
		{"llama.cpp", gateway.Options{Providers: map[string]gateway.Service{"llamacpp": {BaseURL: s.OpenAIURL()}}}, "llamacpp/script-1"},
		{"any, by name", gateway.Options{Default: "acme/*", Keys: keys(map[string]string{"ACME_API_KEY": "key-1234"}), Providers: acme}, "acme/script-1"},
	} {
		if got := defaultModel(t, build(t, c.opt)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAliasesFallToWhatIsConfigured: fast, smart and local are the first of their lists that can be called; if none can,
// that is an error in words, and never another model.
func TestAliasesFallToWhatIsConfigured(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "x", Repeat: true}}}).Start()
	defer s.Close()
	here := map[string]gateway.Service{"llamacpp": {BaseURL: s.OpenAIURL()}}
	for _, c := range []struct {
		alias string
		opt   gateway.Options
		want  string
	}{
		{"smart", gateway.Options{Keys: keys(map[string]string{gateway.KeyAnthropic: "key-1234", gateway.KeyZai: "key-1234"})}, "anthropic/claude-opus-5-5"},
		{"smart", gateway.Options{Keys: keys(map[string]string{gateway.KeyZai: "key-1234"})}, "zai/glm-5.3"},
		{"fast", gateway.Options{Keys: keys(map[string]string{gateway.KeyKimi: "key-1234"})}, "kimi/kimi-k2.6"},
		{"fast", gateway.Options{Providers: here}, "llamacpp/script-1"},
		{"local", gateway.Options{Keys: keys(map[string]string{gateway.KeyAnthropic: "key-1234"}), Providers: here}, "llamacpp/script-1"},
		{"local", gateway.Options{LocalBaseURL: s.OpenAIURL(), Providers: here}, "ollama/script-1"},
		{"local/script-1", gateway.Options{Providers: here}, "llamacpp/script-1"},
	} {
		g := build(t, c.opt)
		prov, model, err := g.Resolve(t.Context(), gateway.Scope{Model: c.alias})
		if prov+"/"+model != c.want {
			t.Errorf("%s: got %s/%s, want %s: %v", c.alias, prov, model, c.want, err)
		}
		shown := false
		for _, m := range g.Models(t.Context()) {
			shown = shown || m.Name == c.want && slices.Contains(m.Aliases, c.alias) && m.Configured
		}
		if !shown && !strings.Contains(c.alias, "/") {
			t.Errorf("choir models does not show that %s is %s", c.alias, c.want)
		}
	}
	for _, c := range []struct {
		alias string
		opt   gateway.Options
		want  []string
	}{
		{"smart", gateway.Options{}, []string{"smart stands for", "choir secrets set", gateway.KeyAnthropic, gateway.KeyKimi}},
		{"local", gateway.Options{Providers: map[string]gateway.Service{"ollama": {BaseURL: "http://127.0.0.1:1/v1"}, "llamacpp": {BaseURL: "http://127.0.0.1:1/v1"}}}, []string{"local stands for", "start a model server"}},
		{"local/other", gateway.Options{LocalBaseURL: s.OpenAIURL(), Providers: here}, []string{"that has it"}},
	} {
		g := build(t, c.opt)
		sc := scope()
		sc.Model = c.alias
		_, err := g.Turn(t.Context(), sc, say("x"), nil)
		for _, w := range c.want {
			if code(err) != "no_model" || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", c.alias, err, w)
			}
		}
	}
}

// TestWhoseModelCounts: the prompt's, then what the loop asks for, then the computer's for the role and for all, then the
// owner's for the role and for all.
func TestWhoseModelCounts(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "x", Repeat: true}}}).Start()
	defer s.Close()
	opt := gateway.Options{OpenAIBaseURL: s.OpenAIURL(), Default: "openai/default", Roles: map[string]string{"director": "openai/directors"}}
	g := build(t, opt)
	own := gateway.Choice{Default: "openai/computers", Roles: map[string]string{"associate": "openai/computers-associates"}}
	for _, c := range []struct {
		name          string
		role          string
		choice        gateway.Choice
		prompt, loops string
		want          string
	}{
		{"nobody", "associate", gateway.Choice{}, "", "", "default"},
		{"the role", "director", gateway.Choice{}, "", "", "directors"},
		{"the computer before the role", "director", own, "", "", "computers"},
		{"the computer's role", "associate", own, "", "", "computers-associates"},
		{"the loop", "associate", own, "", "openai/loops", "loops"},
		{"the prompt", "associate", own, "openai/prompts", "openai/loops", "prompts"},
	} {
		sc, req := scope(), say("go")
		sc.Role, sc.Choice, sc.Model, req.Model = c.role, c.choice, c.prompt, c.loops
		turn, err := g.Turn(t.Context(), sc, req, nil)
		if err != nil || turn.Model != c.want {
			t.Errorf("%s: %q, want %q: %v", c.name, turn.Model, c.want, err)
		}
		if _, model, err := g.Resolve(t.Context(), sc); c.loops == "" && model != c.want {
			t.Errorf("%s: resolved to %q, want %q: %v", c.name, model, c.want, err)
		}
	}
	for _, m := range g.Models(t.Context()) {
		if want := m.Name == "openai/directors"; slices.Contains(m.Roles, "director") != want {
			t.Errorf("%s is of %v", m.Name, m.Roles)
		}
	}
	for _, bad := range []gateway.Options{{Default: "nobody/x"}, {Roles: map[string]string{"director": "nobody/x"}}, {Roles: map[string]string{"janitor": "openai/x"}}} {
		bad.Logger = quiet()
		if _, err := gateway.New(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := g.CheckChoice(gateway.Choice{Roles: map[string]string{"director": "nobody/x"}}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a computer's choice of what is not: %v", err)
	}
}

// TestLongRequestsCostMore: of a request over the bound, all is charged at the higher price, and it is what is reserved.
func TestLongRequestsCostMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[[models]]\nname = \"openai/own\"\nprice_in = 1.0\nprice_out = 2.0\nlong = { over = 1000, in = 10.0, out = 20.0 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   int64
		want float64
	}{{1000, 1000*1.0/1e6 + 100*2.0/1e6}, {1001, 1001*10.0/1e6 + 100*20.0/1e6}} {
		g, _, m := play(t, modelserver.OpenAI, func(o *gateway.Options) { o.Catalogue, o.Default = path, "openai/own" }, modelserver.Turn{Text: "x", Usage: &modelserver.Usage{In: c.in, Out: 100}})
		if _, err := g.Turn(t.Context(), scope(), say("x"), nil); err != nil {
			t.Fatal(err)
		}
		if got := m.taken()[0].Usage.CostUSD; got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%d tokens cost %v, want %v", c.in, got, c.want)
		}
	}
	g, _, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) { o.Catalogue, o.Default = path, "openai/own" }, modelserver.Turn{Text: "x", Repeat: true})
	sc := scope()
	sc.Budget.CostUSD = 0.012 // enough for twice as many tokens at the lower price
	if _, err := g.Turn(t.Context(), sc, say(strings.Repeat("x", 4000)), nil); code(err) != "budget" {
		t.Errorf("a long request under a budget for a short one: %v", err)
	}
}

// TestTheCatalogueIsWhole: what the built-in aliases and defaults name is in it, and each price says whose and of when it is.
func TestTheCatalogueIsWhole(t *testing.T) {
	g := build(t, gateway.Options{Keys: func(context.Context, string) (string, error) { return "key-1234", nil }})
	known := map[string]gateway.Model{}
	for _, m := range g.Models(t.Context()) {
		known[m.Name] = m
		if m.Priced && m.Provider != "rehearsal" && (m.PriceSource == "" || m.PriceDate == "") {
			t.Errorf("the price of %s is from nowhere", m.Name)
		}
		if m.Priced && m.PriceOut < m.PriceIn {
			t.Errorf("%s: %+v", m.Name, m.ModelInfo)
		}
		if m.Context > 0 && m.Source == "" {
			t.Errorf("the sizes of %s are from nowhere", m.Name)
		}
	}
	for _, name := range []string{"smart", "fast", "opus", "sonnet", "haiku", "zai/glm-5.2", "kimi/kimi-k2.6", "openai/gpt-6.2-sol"} {
		prov, model, err := g.Resolve(t.Context(), gateway.Scope{Model: name})
		if m, ok := known[prov+"/"+model]; err != nil || !ok || !m.Priced || m.Context == 0 {
			t.Errorf("%s is %s/%s: %v", name, prov, model, err)
		}
	}
}

// TestServersOfThisMachineThatAreNone: what answers at a usual port and is no model server is not taken for one.
func TestServersOfThisMachineThatAreNone(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello")) }))
	defer web.Close()
	g := build(t, gateway.Options{Providers: map[string]gateway.Service{"llamacpp": {BaseURL: web.URL + "/v1"}}})
	if got := defaultModel(t, g); got != "rehearsal/plans" {
		t.Errorf("got %q", got)
	}
}
