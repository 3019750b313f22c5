package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// bindMembers binds the methods about a computer's members and invitations.
func (s *Server) bindMembers(t rpc.Table) {
	ids := s.options.Identity
	rpc.Bind(t, rpc.MemberList, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (rpc.List[view.Member], error) {
		list, err := ids.Members(ctx, who.Computer)
		out := make([]view.Member, len(list))
		for i, m := range list {
			out[i] = view.Member{ID: m.Account, Name: m.Name, Role: m.Role, Since: m.Since}
		}
		return rpc.Listed(out, false, err)
	})
	rpc.Bind(t, rpc.MemberChange, func(ctx context.Context, who rpc.Caller, in rpc.ChangeMemberRequest) (rpc.None, error) {
		ended, err := ids.SetRole(ctx, who.Computer, in.Account, in.Body.Role)
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(s.leave(in.Account, who.Computer, ended))
	})
	out := func(ctx context.Context, who rpc.Caller, account string) (rpc.None, error) {
		ended, err := ids.RemoveMember(ctx, who.Computer, account)
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(s.leave(account, who.Computer, ended))
	}
	rpc.Bind(t, rpc.MemberRemove, func(ctx context.Context, who rpc.Caller, in rpc.OnMember) (rpc.None, error) {
		return out(ctx, who, in.Account)
	})
	rpc.Bind(t, rpc.MemberLeave, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (rpc.None, error) {
		return out(ctx, who, who.Actor.Account())
	})
	rpc.Bind(t, rpc.InvitationCreate, func(ctx context.Context, who rpc.Caller, in rpc.InviteRequest) (view.Invitation, error) {
		i, token, err := ids.NewInvitation(ctx, who.Computer, in.Body.Role, who.Actor.Account())
		v := invitation(i)
		v.Token = token
		return v, err
	})
	rpc.Bind(t, rpc.InvitationList, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (rpc.List[view.Invitation], error) {
		list, err := ids.Invitations(ctx, who.Computer)
		out := make([]view.Invitation, len(list))
		for i, v := range list {
			out[i] = invitation(v)
		}
		return rpc.Listed(out, false, err)
	})
	rpc.Bind(t, rpc.InvitationRevoke, func(ctx context.Context, who rpc.Caller, in rpc.OnInvitation) (rpc.None, error) {
		return rpc.Done(ids.TakeBack(ctx, who.Computer, in.Invitation))
	})
	rpc.Bind(t, rpc.InvitationAccept, func(ctx context.Context, who rpc.Caller, in rpc.JoinRequest) (view.Membership, error) {
		cid, role, err := ids.Accept(ctx, in.Body.Token, who.Actor.Account())
		return view.Membership{Computer: cid, Role: role}, err
	})
}

func invitation(i identity.Invitation) view.Invitation {
	return view.Invitation{ID: i.ID, Role: i.Role, By: i.By, Expires: i.Expires}
}

// bindAccounts binds the methods about the accounts that may sign in.
func (s *Server) bindAccounts(t rpc.Table) {
	ids := s.options.Identity
	rpc.Bind(t, rpc.AccountGet, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (view.Account, error) {
		a, err := ids.Account(ctx, who.Actor.Account())
		out := account(a)
		if scope := callerOf(ctx).scope; scope != contract.Everything() {
			out.May = scope.List()
		}
		return out, err
	})
	rpc.Bind(t, rpc.AccountList, func(ctx context.Context, _ rpc.Caller, _ rpc.Nothing) (rpc.List[view.Account], error) {
		list, err := ids.Accounts(ctx)
		out := make([]view.Account, len(list))
		for i, a := range list {
			out[i] = account(a)
		}
		return rpc.Listed(out, false, err)
	})
	rpc.Bind(t, rpc.AccountLink, func(ctx context.Context, who rpc.Caller, in rpc.LinkRequest) (view.Link, error) {
		if in.Account == "" {
			in.Account = who.Actor.Account()
		}
		return s.link(ctx, in.Account, "")
	})
	rpc.Bind(t, rpc.AccountInvite, func(ctx context.Context, who rpc.Caller, in rpc.NewAccountRequest) (view.Invited, error) {
		if err := holds(who.Actor, in.Body.Powers); err != nil {
			return view.Invited{}, err
		}
		u, err := ids.NewAccount(ctx, in.Body.Name, in.Body.Powers)
		if err != nil {
			return view.Invited{}, err
		}
		a, err := ids.Account(ctx, u.ID)
		if err != nil {
			return view.Invited{}, err
		}
		link, err := s.link(ctx, u.ID, "")
		return view.Invited{Account: account(a), Link: link}, err
	})
	rpc.Bind(t, rpc.AccountChange, func(ctx context.Context, who rpc.Caller, in rpc.ChangeAccountRequest) (rpc.None, error) {
		if err := s.above(ctx, who.Actor, in.Account, in.Body.Powers); err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(ids.SetPowers(ctx, in.Account, in.Body.Powers))
	})
	rpc.Bind(t, rpc.AccountRemove, func(ctx context.Context, who rpc.Caller, in rpc.OnAccount) (rpc.None, error) {
		if err := s.above(ctx, who.Actor, in.Account, nil); err != nil {
			return rpc.None{}, err
		}
		ended, err := ids.RemoveAccount(ctx, in.Account)
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(s.leave(in.Account, "", ended))
	})
}

// bindTokens binds the methods about the caller's own tokens.
func (s *Server) bindTokens(t rpc.Table) {
	ids := s.options.Identity
	rpc.Bind(t, rpc.TokenList, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (rpc.List[view.Token], error) {
		list, err := ids.Tokens(ctx, who.Actor.Account())
		out := make([]view.Token, len(list))
		for i, k := range list {
			out[i] = tokenView(k)
		}
		return rpc.Listed(out, false, err)
	})
	rpc.Bind(t, rpc.TokenCreate, func(ctx context.Context, who rpc.Caller, in rpc.NewTokenRequest) (view.Token, error) {
		scope := identity.TokenScope{May: in.Body.May}
		if in.Body.Days > 0 {
			scope.Expires = s.options.Now().Add(time.Duration(in.Body.Days) * 24 * time.Hour)
		}
		k, secret, err := ids.NewToken(ctx, who.Actor.Account(), in.Body.Name, scope)
		if err != nil {
			return view.Token{}, err
		}
		v := tokenView(k)
		v.Secret = secret
		return v, nil
	})
	rpc.Bind(t, rpc.GitToken, s.gitToken)
	rpc.Bind(t, rpc.TokenRevoke, func(ctx context.Context, who rpc.Caller, in rpc.OnToken) (rpc.None, error) {
		ended, err := ids.RevokeToken(ctx, who.Actor.Account(), in.Token)
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(s.end(ended))
	})
}

func account(a identity.Account) view.Account {
	return view.Account{ID: a.ID, Name: a.Name, Claimed: a.Claimed, Created: a.Created, Powers: a.Powers, Machine: a.Machine}
}

// link makes a sign-in link for an account, for the session that asks or, without one, for others.
func (s *Server) link(ctx context.Context, account, session string) (view.Link, error) {
	user, err := s.options.Identity.User(ctx, account)
	if err != nil {
		return view.Link{}, err
	}
	newLink := s.options.Identity.NewLink
	if session != "" {
		newLink = func(ctx context.Context, user string) (string, time.Time, error) {
			return s.options.Identity.NewLinkFrom(ctx, user, session)
		}
	}
	token, expires, err := newLink(ctx, account)
	if err != nil {
		return view.Link{}, err
	}
	return view.Link{URL: s.ClaimURL(token, user.Claimed), Expires: expires}, nil
}

// above refuses to let an account change another that has powers which it lacks itself, or give such
// powers away: nobody can become more than they are by inviting others.
func (s *Server) above(ctx context.Context, who contract.Actor, account string, powers []grant.Power) error {
	h, err := s.options.Identity.Held(ctx, account, "")
	if err != nil {
		return err
	}
	return holds(who, slices.Concat(h.Powers, powers))
}

// holds refuses powers that the actor does not have.
func holds(who contract.Actor, powers []grant.Power) error {
	for _, p := range powers {
		if !who.Can(contract.Capability(p)) && !defence.Off(defence.GrantGiven) {
			return fault.New("", fault.Denied, "Ask somebody who has it.", fmt.Errorf("the power %q is not yours to give or to take", p))
		}
	}
	return nil
}
