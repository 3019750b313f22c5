package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

func build(t *testing.T, opt gateway.Options) *gateway.Gateway {
	t.Helper()
	opt.Logger = quiet()
	if opt.LocalBaseURL == "" {
		opt.LocalBaseURL = "none"
	}
	g, err := gateway.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func keys(m map[string]string) func(context.Context, string) (string, error) {
	return gateway.Env(func(name string) string { return m[name] })
}

func defaultModel(t *testing.T, g *gateway.Gateway) string {
	t.Helper()
	for _, m := range g.Models(t.Context()) {
		if m.Default {
			return m.Name
		}
	}
	return ""
}

func TestWhichModelIsUsed(t *testing.T) {
	local := modelserver.New(modelserver.Script{}).Start()
	defer local.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + closed.Addr().String() + "/v1"
	closed.Close()
	for _, c := range []struct {
		name string
		opt  gateway.Options
		want string
	}{
		{"nothing", gateway.Options{}, "rehearsal/plans"},
		{"no local server", gateway.Options{LocalBaseURL: nobody}, "rehearsal/plans"},
		{"a local server", gateway.Options{LocalBaseURL: local.OpenAIURL()}, "ollama/script-1"},
		{"a key goes before the local server", gateway.Options{LocalBaseURL: local.OpenAIURL(), Keys: keys(map[string]string{gateway.KeyOpenAI: "sk-1234567"})}, "openai/gpt-5.4"},
		{"both keys", gateway.Options{Keys: keys(map[string]string{gateway.KeyOpenAI: "sk-1234567", gateway.KeyAnthropic: "sk-1234567"})}, "anthropic/claude-sonnet-4-6"},
		{"named", gateway.Options{Default: "haiku", Keys: keys(map[string]string{gateway.KeyOpenAI: "sk-1234567"})}, ""},
		{"a compatible service says what it has", gateway.Options{OpenAIBaseURL: local.OpenAIURL()}, "openai/script-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := defaultModel(t, build(t, c.opt)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestProbeIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := build(t, gateway.Options{LocalBaseURL: "http://" + l.Addr().String() + "/v1"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got := g.Test(ctx, ""); !got.OK || got.Model != "rehearsal/plans" {
		t.Errorf("got %+v", got)
	}
}

func TestHostsChoiceGoesBeforeTheLoops(t *testing.T) {
	g, s, _ := play(t, modelserver.Anthropic, nil, modelserver.Turn{Text: "x", Repeat: true})
	sc := scope()
	sc.Model = "anthropic/the-hosts"
	req := say("go")
	req.Model = "anthropic/the-loops"
	turn, err := g.Turn(t.Context(), sc, req, nil)
	if err != nil || turn.Model != "the-hosts" {
		t.Errorf("model %q, %v", turn.Model, err)
	}
	sc.Model = ""
	if turn, err = g.Turn(t.Context(), sc, req, nil); err != nil || turn.Model != "the-loops" {
		t.Errorf("model %q, %v", turn.Model, err)
	}
	if !strings.Contains(string(s.Requests()[0].Body), `"the-hosts"`) {
		t.Errorf("sent %s", s.Requests()[0].Body)
	}
}

func TestBaseURLs(t *testing.T) {
	for base, ok := range map[string]bool{
		"https://models.example/v1":      true,
		"http://127.0.0.1:8000/v1":       true,
		"http://[::1]:8000":              true,
		"http://192.168.1.7:8000/v1/":    true,
		"http://vllm:8000":               true,
		"http://models.example/v1":       false,
		"http://8.8.8.8/v1":              false,
		"ftp://models.example":           false,
		"https://user:pw@models.example": false,
		"https://models.example/?a=b":    false,
		"http://169.254.169.254/v1":      false,
		"https://[fe80::1]/v1":           false,
		"https://":                       false,
		"file:///etc/passwd":             false,
		"http://0.0.0.0:8000":            false,
	} {
		_, err := gateway.New(gateway.Options{OpenAIBaseURL: base, Logger: quiet(), LocalBaseURL: "none"})
		if (err == nil) != ok || (err != nil && !fault.Is(err, fault.Invalid)) {
			t.Errorf("%s: %v", base, err)
		}
		if err != nil && strings.Contains(err.Error(), "pw@") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}

func TestUnusableModelsAndKeys(t *testing.T) {
	g := build(t, gateway.Options{Keys: keys(map[string]string{gateway.KeyOpenAI: "bad\r\nX-Evil: 1"})})
	for name, want := range map[string]string{"nonsense": "no_model", "nobody/gpt": "no_model", "anthropic/claude-opus-4-6": "no_model", "openai/gpt-5.4": "invalid", "local/llama": "no_model", "openai/": "no_model"} {
		sc := scope()
		sc.Model = name
		if _, err := g.Turn(t.Context(), sc, say("go"), nil); code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := build(t, gateway.Options{Keys: func(context.Context, string) (string, error) { return "", errors.New("vault is locked") }})
	if _, err := broken.Turn(t.Context(), scope(), say("go"), nil); code(err) != "unavailable" {
		t.Errorf("a key that can't be read must not turn into a rehearsal: %v", err)
	}
}

func TestCatalogueFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[aliases]\nmine = \"openai/own\"\n[[models]]\nname = \"openai/own\"\nprice_in = 1.0\nprice_out = 2.0\n")
	g := build(t, gateway.Options{Catalogue: path, Default: "mine", OpenAIBaseURL: "http://127.0.0.1:1/v1"})
	if got := defaultModel(t, g); got != "openai/own" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"[[models]]\nname = \"x\"\n", "unknown = 1\n", "[[models]]\nname = \"a/b\"\nprice_in = -1.0\nprice_out = 1.0\n", "[[models]]\nname = \"a/b\"\nprice_in = 1.0\n", "["} {
		write(bad)
		if _, err := gateway.New(gateway.Options{Catalogue: path, Logger: quiet()}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestOnlyWhatABudgetCanBoundIsOffered: a model without a price is neither offered nor taken while a budget in money is to
// bound it; aliases come first, and the rehearsal is none.
func TestOnlyWhatABudgetCanBoundIsOffered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[aliases]\nmine = \"openai/priced\"\n[[models]]\nname = \"openai/priced\"\nprice_in = 1.0\nprice_out = 2.0\n[[models]]\nname = \"openai/priceless\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := build(t, gateway.Options{Catalogue: path, Default: "mine", OpenAIBaseURL: "http://127.0.0.1:1/v1"})
	s := scope()
	s.Budget = contract.Budget{CostUSD: 1}
	offered := g.Choosable(t.Context(), s)
	if at := slices.Index(offered, "mine"); at < 0 || at > slices.Index(offered, "openai/priced") || !slices.Contains(offered, "openai/priced") || slices.Contains(offered, "openai/priceless") || slices.ContainsFunc(offered, func(n string) bool { return strings.HasPrefix(n, "rehearsal") }) {
		t.Errorf("offered are %v", offered)
	}
	s.Model = "openai/priceless"
	if _, _, err := g.Usable(t.Context(), s); !fault.Is(err, fault.Missing) || !strings.Contains(err.Error(), "has no price") {
		t.Errorf("it is taken: %v", err)
	}
	s.Budget = contract.Budget{Tokens: 1000}
	if _, name, err := g.Usable(t.Context(), s); err != nil || name != "priceless" {
		t.Errorf("without a budget in money: %q, %v", name, err)
	}
	if offered := g.Choosable(t.Context(), s); !slices.Contains(offered, "openai/priceless") {
		t.Errorf("offered are %v", offered)
	}
}

func TestHandler(t *testing.T) {
	g, _, _ := play(t, modelserver.Anthropic, nil,
		modelserver.Turn{Text: "one two three four five six seven eight nine ten"},
		modelserver.Turn{Text: "no", Fault: &modelserver.Fault{Kind: "status", Status: 400}})
	web := httptest.NewServer(g.Handler(scope()))
	defer web.Close()
	post := func(body string) (int, []contract.TurnChunk) {
		t.Helper()
		resp, err := http.Post(web.URL+"/model/turns", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, chunks(t, resp.Body)
	}
	status, got := post(`{"messages":[{"role":"user","parts":[{"text":"hi"}]}]}`)
	last := got[len(got)-1]
	if status != 200 || last.Turn == nil || len(got) < 3 || got[0].Delta == "" {
		t.Errorf("status %d, chunks %+v", status, got)
	}
	status, got = post(`{"messages":[{"role":"user","parts":[{"text":"hi"}]}]}`)
	if status != 200 || len(got) != 1 || got[0].Error == nil || got[0].Error.Code != "invalid" {
		t.Errorf("status %d, chunks %+v", status, got)
	}
	for _, bad := range []string{`{"messages":[]}`, `{"messages":[{"role":"system","parts":[]}]}`, `{`, `{"messages":[{"role":"user","parts":[{"text":"hi"}]}],"budget":1}`} {
		if status, got = post(bad); status != 400 || len(got) != 1 || got[0].Error.Code != "invalid" {
			t.Errorf("%s: status %d, chunks %+v", bad, status, got)
		}
	}
	if status, got = post(strings.Repeat(" ", contract.MaxTurn+1)); status != 413 || got[0].Error.Code != "too_large" {
		t.Errorf("status %d, chunks %+v", status, got)
	}
}

// TestAMistakeInTheCatalogueIsFound shows that a catalogue that is refused says in which line it is wrong, and what no
// field is.
func TestAMistakeInTheCatalogueIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"[[models]]\nname = 'mine/x'\nprice = 0\n":    `line 3: "models.price" is no field here`,
		"[[models]]\nname = 'mine/x'\ncontext = ''\n": "line 3",
		"[[models]\n": "line 1",
	} {
		path := filepath.Join(t.TempDir(), "catalogue.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.New(gateway.Options{Catalogue: path, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fault.HintOf(err), "models.catalogue") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
