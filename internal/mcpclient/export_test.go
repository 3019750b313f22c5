package mcpclient

import "time"

// Within gives each call of a server so much time.
func (s *Server) Within(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, o := range s.offers {
		o.Tool.Limits.Time = d
		s.offers[name] = o
	}
}
