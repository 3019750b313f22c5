// Package service greets visitors.
package service

import "fmt"

// Store keeps counts.
type Store interface {
	// Add adds to a count and returns it.
	Add(name string, n int) int
}

// Service counts visits.
type Service struct{ store Store }

// New returns a service on a store.
func New(s Store) *Service { return &Service{s} }

// Visit counts a visit and greets.
func (s *Service) Visit(name string) string {
	n := s.store.Add(name, 1)
	return fmt.Sprintf("%s, visit %d", name, n)
}
