package runspace_test

import (
	"log/slog"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/gateway"
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
