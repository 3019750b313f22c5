package control

import (
	"context"
	"sync"
)

// streams are the long answers under way, by the session they belong to, so
// that signing out ends them.
type streams struct {
	mu   sync.Mutex
	open map[string]map[*stream]struct{}
}

type stream struct{ cancel context.CancelFunc }

// attach returns a context that ends with the server, with the session and
// with parent. The session is empty for tokens.
func (s *Server) attach(parent context.Context, session string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(s.ctx, cancel)
	st := &stream{cancel}
	s.streams.mu.Lock()
	set := s.streams.open[session]
	if set == nil {
		set = map[*stream]struct{}{}
		s.streams.open[session] = set
	}
	set[st] = struct{}{}
	s.streams.mu.Unlock()
	return ctx, func() {
		s.streams.mu.Lock()
		delete(set, st)
		if len(set) == 0 && len(s.streams.open[session]) == 0 {
			delete(s.streams.open, session)
		}
		s.streams.mu.Unlock()
		stop()
		cancel()
	}
}

// end cuts off what belongs to sessions, here and on the bus.
func (s *Server) end(sessions []string) error {
	var first error
	for _, id := range sessions {
		s.streams.mu.Lock()
		for st := range s.streams.open[id] {
			st.cancel()
		}
		s.streams.mu.Unlock()
		if err := s.o.Bus.Revoke(id); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func sessionID(c caller) string {
	if c.session == nil {
		return ""
	}
	return c.session.ID
}
