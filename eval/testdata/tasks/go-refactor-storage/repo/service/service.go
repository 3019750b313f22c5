// Package service greets visitors.
package service

import (
	"fmt"

	"example.test/project/store"
)

// Service counts visits.
type Service struct{ memory *store.Memory }

// New returns a service on a store.
func New(m *store.Memory) *Service { return &Service{m} }

// Visit counts a visit and greets.
func (s *Service) Visit(name string) string {
	n := s.memory.Add(name, 1)
	return fmt.Sprintf("%s, visit %d", name, n)
}
