package control

// Streams is how many long answers are under way.
func (s *Server) Streams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	n := 0
	for _, set := range s.streams.open {
		n += len(set)
	}
	return n
}
