package control

import "choir.dev/choiros/internal/view"

// ProblemOf puts a refusal into HTTP.
func ProblemOf(r view.Refusal) Problem { return newProblem(0, r).Problem }

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
