package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/view"
)

// forgetTimeout bounds how long it takes to forget whose a computer was to be.
const forgetTimeout = 30 * time.Second

// making are the computers that requests are just making.
type making struct {
	mu sync.Mutex
	by map[contract.CID]*made
}

type made struct {
	asking int  // requests
	fresh  bool // nobody had recorded it before them
}

// adopt writes down whose a computer is to be, unless that is known.
func (s *Server) adopt(ctx context.Context, cid contract.CID, owner, name string) (identity.Place, error) {
	s.making.mu.Lock()
	defer s.making.mu.Unlock()
	_, err := s.options.Identity.ByID(ctx, cid)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return identity.Place{}, err
	}
	p, aerr := s.options.Identity.Adopt(ctx, cid, owner, name)
	if aerr != nil {
		return identity.Place{}, aerr
	}
	if s.making.by == nil {
		s.making.by = map[contract.CID]*made{}
	}
	m := s.making.by[cid]
	if m == nil {
		m = &made{}
		s.making.by[cid] = m
	}
	m.asking, m.fresh = m.asking+1, m.fresh || err != nil
	return p, nil
}

// adopted ends what adopt began: where nobody asks for the computer any more and there
// is none, neither its owner nor its handle is kept, which the next would not get.
func (s *Server) adopted(ctx context.Context, cid contract.CID, failed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	s.making.mu.Lock()
	defer s.making.mu.Unlock()
	m := s.making.by[cid]
	if m.asking--; m.asking > 0 {
		return nil
	}
	delete(s.making.by, cid)
	if !failed || !m.fresh {
		return nil
	}
	all, err := s.options.Computers.List(ctx)
	if err != nil {
		return err
	}
	removed, err := s.options.Computers.Removed(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(append(all, removed...), func(c view.Computer) bool { return c.ID == cid }) {
		return nil // it goes on being made
	}
	return s.options.Identity.Forget(ctx, cid)
}
