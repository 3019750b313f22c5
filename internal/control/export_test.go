package control

import (
	"maps"

	"choir.dev/choiros/internal/rpc"
)

// Streams is how many long answers are under way.
func (s *Server) Streams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return len(s.streams.open)
}

// Followed is how many runs are followed, each as often as it is.
func (s *Server) Followed() int { return s.services.Followed() }

// Own are the methods that are answered here.
func (s *Server) Own() rpc.Table {
	t := maps.Clone(s.own)
	maps.Copy(t, s.services.Methods())
	return t
}
