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

// forgetTimeout bounds how long adopted may take to forget the owner of a computer that was not made.
const forgetTimeout = 30 * time.Second

// creations holds the computers that requests are making now.
type creations struct {
	mu sync.Mutex
	by map[contract.CID]*creation
}

type creation struct {
	asking int  // how many requests are making it
	fresh  bool // whether it had no recorded owner before them
}

// adopt records who will own a computer, unless that is recorded already.
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
		s.making.by = map[contract.CID]*creation{}
	}
	m := s.making.by[cid]
	if m == nil {
		m = &creation{}
		s.making.by[cid] = m
	}
	m.asking, m.fresh = m.asking+1, m.fresh || err != nil
	return p, nil
}

// adopted ends what adopt began. When the last request for the computer has failed and there is no such
// computer, its owner and its handle are forgotten, so that another can have the handle.
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
		return nil // it is still being made
	}
	return s.options.Identity.Forget(ctx, cid)
}
