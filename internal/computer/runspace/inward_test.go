package runspace_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/gateway"
)

// TestTheRehearsalAnswersNoProgram: it plays plans for the loops, and a program would take that for an answer.
func TestTheRehearsalAnswersNoProgram(t *testing.T) {
	g, err := gateway.New(gateway.Options{LocalBaseURL: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h := runspace.Models{CID: contract.NewCID(), Gateway: g}.Inward(ports.ModelScope{Run: contract.NewID(), Task: contract.NewID(), Role: contract.KindAssociate},
		ports.ModelGrant{Token: "of-this-box", Ready: func() error { return nil }})
	r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(`{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`))
	r.Header.Set("X-Api-Key", "of-this-box")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "only the rehearsal") {
		t.Errorf("a program is answered %d %s", w.Code, w.Body)
	}
}

// TestAProgramIsToldOfTheChosenModel: the model that answers a program is the one that the run's user chose meanwhile.
func TestAProgramIsToldOfTheChosenModel(t *testing.T) {
	g, err := gateway.New(gateway.Options{LocalBaseURL: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h := runspace.Models{CID: contract.NewCID(), Gateway: g}.Inward(ports.ModelScope{Run: contract.NewID(), Task: contract.NewID(), Role: contract.KindAssociate,
		Chosen: func() (string, <-chan struct{}) { return "chosen/two", nil }}, ports.ModelGrant{Token: "of-this-box", Ready: func() error { return nil }})
	r := httptest.NewRequest(http.MethodGet, "/v1/models", nil)
	r.Header.Set("X-Api-Key", "of-this-box")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "chosen") {
		t.Errorf("a program is answered %d %s", w.Code, w.Body)
	}
}
