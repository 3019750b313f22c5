package gateway_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"choir.dev/choiros/internal/gateway"
)

// TestAProviderWithoutItsKeyIsListedWithTheKeysName shows that whoever wants to connect a provider finds it and under which
// name its key is stored, also one of the configuration whose models nobody knows.
func TestAProviderWithoutItsKeyIsListedWithTheKeysName(t *testing.T) {
	g, err := gateway.New(gateway.Options{
		Logger: slog.New(slog.DiscardHandler), LocalBaseURL: "none", Providers: map[string]gateway.Service{"acme": {BaseURL: "http://127.0.0.1:9/v1", Key: "ACME_API_KEY"}},
		Keys: func(context.Context, string) (string, error) { return "", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	find := func(provider string) []gateway.Model {
		return slices.DeleteFunc(g.Models(t.Context()), func(m gateway.Model) bool { return m.Provider != provider })
	}
	if got := find("acme"); len(got) != 1 || got[0].Name != "acme/*" || got[0].Key != "ACME_API_KEY" || got[0].Configured {
		t.Errorf("without its key: %+v", got)
	}
	for _, m := range find("anthropic") {
		if m.Key != "ANTHROPIC_API_KEY" {
			t.Errorf("%s has the key %q", m.Name, m.Key)
		}
	}
	if m := find("rehearsal"); len(m) != 1 || m[0].Key != "" {
		t.Errorf("the rehearsal: %+v", m)
	}
}
