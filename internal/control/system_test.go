package control_test

import (
	"context"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// system is the rest of a control plane, in memory.
type system struct {
	mu      sync.Mutex
	secrets map[string]string
}

func (s *system) Secrets(context.Context) ([]view.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []view.Secret
	for name := range s.secrets {
		out = append(out, view.Secret{ID: name})
	}
	return out, nil
}

func (s *system) SetSecret(_ context.Context, by contract.Actor, name, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[name] = value
	return nil
}

func (s *system) RemoveSecret(_ context.Context, by contract.Actor, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.secrets, name)
	return nil
}

func (s *system) Models(context.Context) ([]view.Model, error) {
	return []view.Model{{ID: "rehearsal/rehearsal", Provider: "rehearsal", Default: true, Available: true}}, nil
}

func (s *system) TestModel(_ context.Context, model string) (view.ModelTest, error) {
	return view.ModelTest{ID: model, OK: true}, nil
}

func (s *system) Machine(context.Context) []view.Part {
	return []view.Part{{Name: "log", State: view.PartRunning}}
}

func (s *system) Doctor(context.Context) ([]view.Finding, error) {
	return []view.Finding{{ID: "git", Status: "ok", Detail: "found"}}, nil
}
