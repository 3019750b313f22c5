package control

import (
	"maps"

	"choir.dev/choiros/internal/rpc"
)

// Followed returns how many runs are followed; a run counts once for each follower.
func (s *Server) Followed() int { return s.services.Followed() }

// Own returns the methods that the control plane answers itself.
func (s *Server) Own() rpc.Table {
	t := maps.Clone(s.own)
	maps.Copy(t, s.services.Methods())
	return t
}
