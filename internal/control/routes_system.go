package control

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

var secretName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,99}$`)

// OnSecret is what operations on one secret take.
type OnSecret struct {
	Name string `path:"name" maxLength:"100"`
}

func (n OnSecret) check() error {
	if !secretName.MatchString(n.Name) {
		return &contract.FieldError{Field: "name", Reason: "must be a letter and then letters, digits, _ . or -"}
	}
	return nil
}

func (s *Server) routeSystem(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, "/api/secrets", "secrets-list", "Names of the stored secrets"), requestTimeout, func(ctx context.Context, _ *struct{}) (*outPage[view.Secret], error) {
		list, err := s.o.System.Secrets(ctx)
		return listOf(list, false), err
	})
	register(hapi, s, route(http.MethodPut, "/api/secrets/{name}", "secrets-set", "Store a secret; nothing returns it"), requestTimeout, func(ctx context.Context, in *struct {
		OnSecret
		Body struct {
			Value string `json:"value" required:"true" minLength:"1" maxLength:"65536"`
		}
	}) (*struct{}, error) {
		if err := in.check(); err != nil {
			return nil, err
		}
		return nil, s.o.System.SetSecret(ctx, callerOf(ctx).user, in.Name, in.Body.Value)
	})
	register(hapi, s, route(http.MethodDelete, "/api/secrets/{name}", "secrets-remove", "Remove a secret"), requestTimeout, func(ctx context.Context, in *OnSecret) (*struct{}, error) {
		if err := in.check(); err != nil {
			return nil, err
		}
		return nil, s.o.System.RemoveSecret(ctx, callerOf(ctx).user, in.Name)
	})
	register(hapi, s, route(http.MethodGet, "/api/models", "models-list", "Models that can be asked for"), requestTimeout, func(ctx context.Context, _ *struct{}) (*outPage[view.Model], error) {
		list, err := s.o.System.Models(ctx)
		return listOf(list, false), err
	})
	register(hapi, s, route(http.MethodPost, "/api/models/test", "models-test", "Ask a model for a word"), 2*requestTimeout, func(ctx context.Context, in *struct {
		Body struct {
			Model string `json:"model,omitempty" maxLength:"200" doc:"empty: the default"`
		}
	}) (*out[view.ModelTest], error) {
		t, err := s.o.System.TestModel(ctx, in.Body.Model)
		return &out[view.ModelTest]{t}, err
	})
	register(hapi, s, route(http.MethodGet, "/api/doctor", "system-doctor", "What the machine provides, and what is missing"), 2*requestTimeout, func(ctx context.Context, _ *struct{}) (*outPage[view.Finding], error) {
		list, err := s.o.System.Doctor(ctx)
		return listOf(list, false), err
	})
}

func writeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(b)
	return err
}
