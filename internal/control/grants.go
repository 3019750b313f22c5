package control

import (
	"context"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// granted returns an actor limited to what their account was granted in a computer and to scope; when cid
// is empty, to what the account may do on the whole machine. Every way in gets its actors from it, once
// for each request: HTTP in reach, git in gitReach, the bus in onBus, and a desktop's origin in
// serveDesktop. It returns fault.NotFound to those who are not members.
func (s *Server) granted(ctx context.Context, who contract.Actor, scope contract.CapabilitySet, cid contract.CID) (contract.Actor, error) {
	held, err := s.options.Identity.Held(ctx, who.Account(), cid)
	if err != nil {
		return contract.Actor{}, err
	}
	if cid == "" {
		return held.Outside(who, scope)
	}
	return held.Inside(who, scope)
}

// needs refuses an actor who may not do something.
func needs(who contract.Actor, c contract.Capability) error {
	if !who.Can(c) && !defence.Off(defence.ActorAskPower) {
		return grant.Refuse(c)
	}
	return nil
}

// named returns the id of the computer that a request names, awake or not, and the caller as a person
// with what they may do in it. For somebody else's computer it takes the same steps and returns the same
// error as for one that does not exist.
func (s *Server) named(ctx context.Context, c caller, id string) (contract.CID, contract.Actor, error) {
	cid := contract.CID(id)
	if id == only {
		mine, err := s.mine(ctx, c.user)
		if err != nil {
			return "", contract.Actor{}, err
		}
		switch len(mine) {
		case 0:
			return "", contract.Actor{}, grant.NoComputer()
		case 1:
			cid = mine[0]
		default:
			return "", contract.Actor{}, fault.New("", fault.Invalid, "Name one with --computer.", errSeveral)
		}
	}
	if err := cid.Validate(); err != nil {
		return "", contract.Actor{}, err
	}
	who, err := s.granted(ctx, contract.Person(c.user), c.scope, cid)
	if fault.Is(err, fault.NotFound) {
		// The computer may have been made since its owner was last recorded, which listing does.
		if _, err := s.computersOf(ctx, c.user); err != nil {
			return "", contract.Actor{}, err
		}
		who, err = s.granted(ctx, contract.Person(c.user), c.scope, cid)
	}
	return cid, who, err
}

// mine returns the computers that an account is a member of, as computersOf lists them. Each request that
// names no computer calls it, so it does not describe each computer as computersOf does, unless one has
// no recorded owner yet.
func (s *Server) mine(ctx context.Context, account string) ([]contract.CID, error) {
	roles, err := s.options.Identity.Mine(ctx, account)
	if err != nil {
		return nil, err
	}
	all := s.options.Computers.IDs()
	mine := slices.DeleteFunc(slices.Clone(all), func(cid contract.CID) bool { return roles[cid] == grant.None })
	if len(mine) == len(all) {
		return mine, nil
	}
	places, err := s.options.Identity.Places(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[contract.CID]bool, len(places))
	for _, p := range places {
		known[p.Computer] = true
	}
	if !slices.ContainsFunc(all, func(cid contract.CID) bool { return !known[cid] }) {
		return mine, nil
	}
	list, err := s.computersOf(ctx, account)
	if err != nil {
		return nil, err
	}
	mine = mine[:0]
	for _, c := range list {
		mine = append(mine, c.ID)
	}
	return mine, nil
}

// computersOf lists the computers that an account is a member of. Those without a recorded owner are
// recorded as the machine owner's.
func (s *Server) computersOf(ctx context.Context, account string) ([]view.Computer, error) {
	all, err := s.options.Computers.List(ctx)
	if err != nil {
		return nil, err
	}
	places, err := s.places(ctx, all)
	if err != nil {
		return nil, err
	}
	roles, err := s.options.Identity.Mine(ctx, account)
	if err != nil {
		return nil, err
	}
	mine := make([]view.Computer, 0, len(roles))
	for _, c := range all {
		if roles[c.ID] != grant.None || defence.Off(defence.GrantListed) {
			mine = append(mine, s.placed(c, places[c.ID]))
		}
	}
	return mine, nil
}

// removedOf lists the removed computers that an account owns.
func (s *Server) removedOf(ctx context.Context, account string) ([]view.Computer, error) {
	all, err := s.options.Computers.Removed(ctx)
	if err != nil {
		return nil, err
	}
	roles, err := s.options.Identity.Mine(ctx, account)
	if err != nil {
		return nil, err
	}
	mine := []view.Computer{}
	for _, c := range all {
		if roles[c.ID] == grant.Owner {
			mine = append(mine, c)
		}
	}
	return mine, nil
}

// places returns the places of computers' desktops. A computer without a recorded owner becomes the
// machine owner's.
func (s *Server) places(ctx context.Context, all []view.Computer) (map[contract.CID]identity.Place, error) {
	known, err := s.options.Identity.Places(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[contract.CID]identity.Place, len(known))
	for _, p := range known {
		out[p.Computer] = p
	}
	for _, c := range all {
		if _, ok := out[c.ID]; ok {
			continue
		}
		owner, err := s.options.Identity.Owner(ctx)
		if err != nil {
			return nil, err
		}
		if out[c.ID], err = s.options.Identity.Adopt(ctx, c.ID, owner.ID, c.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// onBus returns the caller behind a desktop's session on the bus, if they may call a method of a
// computer.
func (s *Server) onBus(ctx context.Context, m rpc.Declared, cid contract.CID, principal string) (rpc.Caller, error) {
	ses, err := s.options.Identity.ByPrincipal(ctx, principal)
	if err != nil {
		return rpc.Caller{}, err
	}
	if ses.Computer != cid {
		return rpc.Caller{}, fault.New("", fault.Denied, "Reload the console.", errOtherComputer)
	}
	who, err := s.granted(ctx, contract.DesktopOf(ses.User), contract.Everything(), cid)
	if err == nil {
		err = m.Permits(who)
	}
	return rpc.Caller{Computer: cid, Actor: who, Session: ses.Root, Principal: ses.ID}, err
}
