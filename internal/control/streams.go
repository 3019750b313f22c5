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

// streams holds the long answers and sockets under way with their holders, so that a stream ends at once
// when its holder loses the right to it.
type streams struct {
	mu   sync.Mutex
	open map[*stream]struct{}
}

// holder identifies on whose behalf a stream is open.
type holder struct {
	account string
	session string       // the id of the browser's session or of the token
	cid     contract.CID // the computer that it concerns; "" as long as that is not known
	expires time.Time    // when the right to it ends by itself; zero: it does not
}

type stream struct {
	holder
	cancel context.CancelFunc
}

// forever is longer than any stream is open.
const forever = 100 * 366 * 24 * time.Hour

// hold registers a stream and returns a context that ends with the server, with parent, and when the
// holder loses the right to the stream. may is called after the stream has been registered and decides
// whether the holder has the right: one that is revoked before the call is found missing, and revoking it
// later ends the stream. may also returns the computer that the stream concerns.
func (s *Server) hold(parent context.Context, of holder, may func(context.Context) (contract.CID, error)) (context.Context, func(), error) {
	left := forever
	if !of.expires.IsZero() {
		left = of.expires.Sub(s.options.Now()) // a stream ends with the token that it was opened with
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

// cut ends the streams for which chosen returns true.
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

// end ends all that belongs to sessions, here and on the bus.
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

// leave ends what an account has under way in a computer, or in all of them when cid is empty, and the
// sessions that its removal ended.
func (s *Server) leave(account string, cid contract.CID, sessions []string) error {
	s.cut(func(h holder) bool { return h.account == account && (cid == "" || h.cid == "" || h.cid == cid) })
	s.services.End(account, cid)
	return s.end(sessions)
}

// present checks once more that a caller's session or token still exists. It is called after the stream
// was registered, so that whoever ends the session from then on ends the stream too.
func (s *Server) present(ctx context.Context, c caller) error {
	lives, err := s.options.Identity.Valid(ctx, c.stream())
	if err == nil && !lives {
		err = fault.New("", fault.Denied, "Sign in again.", errors.New("this session or token has ended"))
	}
	return err
}

// holderOf returns the holder of a request's streams.
func holderOf(c caller) holder {
	return holder{account: c.user, session: c.stream(), expires: c.expires}
}

// stream returns the id of the session or token that a caller's streams belong to.
func (c caller) stream() string {
	if c.session != nil {
		return c.session.ID
	}
	return c.token
}
