package runspace_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/view"
)

// TestAComputersModels: what a computer's runs use is what is configured for the role there, else for the computer, else for
// the role on the machine; a prompt's model goes before all of them.
func TestAComputersModels(t *testing.T) {
	g, err := gateway.New(gateway.Options{Logger: slog.New(slog.DiscardHandler), LocalBaseURL: "none", OpenAIBaseURL: "http://127.0.0.1:1/v1", Default: "openai/default", Roles: map[string]string{"associate": "openai/associates"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		own    config.ComputerModels
		role   contract.ActorKind
		prompt string
		want   string
	}{
		{config.ComputerModels{}, contract.KindDirector, "", "default"},
		{config.ComputerModels{}, contract.KindAssociate, "", "associates"},
		{config.ComputerModels{Default: "openai/own"}, contract.KindAssociate, "", "own"},
		{config.ComputerModels{Default: "openai/own", Director: "openai/own-directors"}, contract.KindDirector, "", "own-directors"},
		{config.ComputerModels{Default: "openai/own", Director: "openai/own-directors"}, contract.KindDirector, "openai/prompts", "prompts"},
	} {
		cid := contract.NewCID()
		m := runspace.ModelsOf(cid, g, config.Models{Computers: map[string]config.ComputerModels{string(cid): c.own}}, nil)
		if _, model, err := m.Resolve(t.Context(), c.role, c.prompt); err != nil || model != c.want {
			t.Errorf("%+v, %s: got %q, want %q: %v", c.own, c.role, model, c.want, err)
		}
	}
}

// TestWhatAPromptCanChoose: efforts are those of the models that its computer uses, and ways are those of a computer that has
// models and does not only play plans.
func TestWhatAPromptCanChoose(t *testing.T) {
	const thinks, other = "openai/gpt-5.4", "openai/unheard-of"
	choices := func(computer config.ComputerModels, o gateway.Options, review bool) view.Choices {
		t.Helper()
		o.Logger, o.LocalBaseURL = slog.New(slog.DiscardHandler), "none"
		g, err := gateway.New(o)
		if err != nil {
			t.Fatal(err)
		}
		cid := contract.NewCID()
		c := config.Config{Loops: config.Loops{DirectWords: 30}, Models: config.Models{Computers: map[string]config.ComputerModels{string(cid): computer}, Efforts: config.Roles{Associate: "low"}}}
		if review {
			c.Loops.ReviewComputers = []string{string(cid)}
		}
		p, err := runspace.ModelsOf(cid, g, c.Models, nil).Provider(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return p.Choices
	}
	there := gateway.Options{OpenAIBaseURL: "http://127.0.0.1:1/v1", Default: other}
	if got := choices(config.ComputerModels{}, there, false); len(got.Efforts) != 0 || got.Associate != "" || len(got.Routes) != 2 || got.DirectWords != 30 || got.Review {
		t.Errorf("a model that can't be told: %+v", got)
	}
	if got := choices(config.ComputerModels{Associate: thinks}, there, true); len(got.Efforts) < 2 || !slices.Contains(got.Efforts, contract.EffortHigh) || got.Associate != contract.EffortLow || got.Director != "" || !got.Review {
		t.Errorf("one role's model can be told: %+v", got)
	}
	if got := choices(config.ComputerModels{}, gateway.Options{}, false); len(got.Routes) != 0 || got.DirectWords != 0 || len(got.Efforts) != 0 {
		t.Errorf("the rehearsal: %+v", got)
	}
}

// TestAFrameWaitsForNoService: what a frame shows of the next prompt is what is known; fifty of them have a service, which
// does not answer, asked once.
func TestAFrameWaitsForNoService(t *testing.T) {
	var asked atomic.Int64
	arrived := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	g, err := gateway.New(gateway.Options{Logger: slog.New(slog.DiscardHandler), LocalBaseURL: "none", Default: "acme/*", Providers: map[string]gateway.Service{"acme": {BaseURL: s.URL + "/v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	m := runspace.ModelsOf(contract.NewCID(), g, config.Models{}, nil)
	for range 50 {
		if p, err := m.Next(t.Context(), config.Config{}); err != nil || p.Name != "acme" || p.Model != "*" || p.Rehearsal {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	<-arrived
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// TestAFrameIsShownWhereNoModelCanBeCalled: the console opens, and the rehearsal is not said to play.
func TestAFrameIsShownWhereNoModelCanBeCalled(t *testing.T) {
	g, err := gateway.New(gateway.Options{Logger: slog.New(slog.DiscardHandler), LocalBaseURL: "none", Default: "anthropic/claude-sonnet-4-6"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := runspace.ModelsOf(contract.NewCID(), g, config.Models{}, nil).Next(t.Context(), config.Config{}); err != nil || p.Name != "" || p.Rehearsal {
		t.Errorf("%+v, %v", p, err)
	}
}
