package fleet

import (
	"log/slog"
	"strings"
	"testing"

	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
)

// TestModelsOfComputersAreChecked: a name that stands for nothing, and what is no computer's id, are refused at the start.
func TestModelsOfComputersAreChecked(t *testing.T) {
	g, err := gateway.New(gateway.Options{Logger: slog.New(slog.DiscardHandler), LocalBaseURL: "none", Providers: providers(map[string]config.Provider{"acme": {BaseURL: "https://acme.example/v1", Key: "ACME_API_KEY", Wire: "responses"}})})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id     string
		models config.ComputerModels
		want   string
	}{
		"fine":             {"abcdefghij012345", config.ComputerModels{Default: "acme/large", Director: "smart"}, ""},
		"no such model":    {"abcdefghij012345", config.ComputerModels{Associate: "nobody/x"}, "models.computers.abcdefghij012345"},
		"no computer's id": {"my-studio", config.ComputerModels{Default: "smart"}, "models.computers.my-studio"},
	} {
		err := checkComputers(g, config.Config{Models: config.Models{Computers: map[string]config.ComputerModels{c.id: c.models}}})
		if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkComputers(g, config.Config{Loops: config.Loops{ReviewComputers: []string{"my-studio"}}}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "loops.review_computers") {
		t.Errorf("reviews of no computer: %v", err)
	}
}
