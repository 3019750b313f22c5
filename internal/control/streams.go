package control

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// streams are the long answers and sockets under way, by whose they are, so that
// who loses the right to one loses it at once.
type streams struct {
	mu   sync.Mutex
	open map[*stream]struct{}
}

// holder is whose a stream is.
type holder struct {
	account string
	session string       // of a browser, or the token
	cid     contract.CID // whose computer's; "" as long as it is not known
	expires time.Time    // when the right to it ends by itself; zero: it does not
}

type stream struct {
	holder
	cancel context.CancelFunc
}

// forever is longer than any stream is open.
const forever = 100 * 366 * 24 * time.Hour

// hold returns a context that ends with the server, with parent, and when who
// holds the stream loses the right to it. What may decides is asked when the
// stream can be found by whoever takes that right away: there is no moment in
// between. It says of which computer the stream is.
func (s *Server) hold(parent context.Context, of holder, may func(context.Context) (contract.CID, error)) (context.Context, func(), error) {
	left := forever
	if !of.expires.IsZero() {
		left = of.expires.Sub(s.options.Now()) // a token that ends takes along what is open by it
	}
	ctx, cancel := context.WithTimeout(parent, left)
	stop := context.AfterFunc(s.ctx, cancel)
	st := &stream{of, cancel}
	s.streams.mu.Lock()
	s.streams.open[st] = struct{}{}
	s.streams.mu.Unlock()
	release := func() {
		s.streams.mu.Lock()
		delete(s.streams.open, st)
		s.streams.mu.Unlock()
		stop()
		cancel()
	}
	cid, err := may(ctx)
	if err != nil {
		release()
		return nil, nil, err
	}
	s.streams.mu.Lock()
	st.cid = cid
	s.streams.mu.Unlock()
	return ctx, release, nil
}

// cut ends the streams that are chosen.
func (s *Server) cut(chosen func(holder) bool) {
	if defence.Off(defence.GrantCut) {
		return
	}
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	for st := range s.streams.open {
		if chosen(st.holder) {
			st.cancel()
		}
	}
}

// end cuts off what belongs to sessions, here and on the bus.
func (s *Server) end(sessions []string) error {
	s.cut(func(h holder) bool { return slices.Contains(sessions, h.session) })
	var first error
	for _, id := range sessions {
		if err := s.options.Bus.Revoke(id); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// leave cuts off what an account has under way in a computer, or in all of them
// when cid is empty, with the sessions that ended by it.
func (s *Server) leave(account string, cid contract.CID, sessions []string) error {
	s.cut(func(h holder) bool { return h.account == account && (cid == "" || h.cid == "" || h.cid == cid) })
	s.services.End(account, cid)
	return s.end(sessions)
}

// present looks again whether a caller's session or token is still there, now that
// whoever ends it finds what is begun by it.
func (s *Server) present(ctx context.Context, c caller) error {
	lives, err := s.options.Identity.Lives(ctx, c.stream())
	if err == nil && !lives {
		err = fault.New("", fault.Denied, "Sign in again.", errors.New("this session or token has ended"))
	}
	return err
}

// holderOf is whose a request's streams are.
func holderOf(c caller) holder {
	return holder{account: c.user, session: c.stream(), expires: c.expires}
}

// stream is what a caller's streams belong to.
func (c caller) stream() string {
	if c.session != nil {
		return c.session.ID
	}
	return c.token
}
