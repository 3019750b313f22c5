package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/begins"
	"choir.dev/choiros/internal/control/sheets"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

type claimIn struct {
	Body struct {
		Token string `json:"token" required:"true" maxLength:"128"`
		Name  string `json:"name,omitempty" maxLength:"100" doc:"what to call the computer; only the first claim names it"`
		// Scheme is of what is shown.
		Scheme string `json:"scheme,omitempty" enum:"dark,light" doc:"which of its themes a new computer begins with; only the first claim says so"`
	}
	address, agent string
}

// Resolve records the client's address and what it says it is, which huma does not pass to handlers.
func (c *claimIn) Resolve(ctx huma.Context) []error {
	r, _ := humachi.Unwrap(ctx)
	c.address, c.agent = address(r), r.UserAgent()
	return nil
}

type claimOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      view.Computer
}

type signOutOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	SiteData  string      `header:"Clear-Site-Data"`
}

func (s *Server) routeAccount(hapi huma.API) {
	register(hapi, s, route(http.MethodPost, "/api/claim", "account-claim", "Use a one-time link up and sign in"), requestTimeout, s.claim)
	register(hapi, s, route(http.MethodPost, "/api/signout", "account-sign-out", "End this session, or with everywhere all of the account's"), requestTimeout, func(ctx context.Context, in *struct {
		Everywhere bool `query:"everywhere"`
	}) (*signOutOut, error) {
		c := callerOf(ctx)
		// A token acts for its account, so one that was not made for managing the account may end no
		// sessions.
		who, err := s.granted(ctx, contract.Person(c.user), c.scope, "")
		if err == nil {
			err = needs(who, contract.CanSelf)
		}
		if err != nil {
			return nil, err
		}
		var ended []string
		switch {
		case in.Everywhere:
			ended, err = s.options.Identity.RevokeAll(ctx, c.user)
		case c.session != nil:
			ended, err = s.options.Identity.SignOut(ctx, c.secret)
		}
		if err != nil {
			return nil, err
		}
		return &signOutOut{SetCookie: ownCookie(consoleCookie, "", -1), SiteData: `"cache", "storage"`}, s.end(ended)
	})
}

// claim signs in with a one-time link. The owner's first claim may also name the computer.
func (s *Server) claim(ctx context.Context, in *claimIn) (*claimOut, error) {
	if !s.tries.Allow(in.address) && !defence.Off(defence.ControlTries) {
		return nil, fault.New("", fault.Exhausted, "Wait a minute.", errors.New("too many tries to sign in"))
	}
	owner, err := s.options.Identity.Owner(ctx)
	if err != nil {
		return nil, err
	}
	if in.Body.Name != "" {
		if err := (contract.ComputerRenamed{Name: in.Body.Name}).Validate(); err != nil {
			return nil, err
		}
	}
	ses, secret, err := s.options.Identity.Claim(ctx, in.Body.Token)
	if err != nil {
		return nil, err
	}
	if err := s.options.Identity.Describe(ctx, ses.ID, sheets.Device(in.agent)); err != nil {
		s.log.Warn("it is not known which browser signed in", "session", ses.ID, "error", err)
	}
	res := &claimOut{SetCookie: ownCookie(consoleCookie, secret, int(ses.Expires.Sub(s.options.Now()).Seconds()))}
	mine, err := s.computersOf(ctx, ses.User)
	if err != nil || len(mine) == 0 {
		return res, err
	}
	res.Body = mine[0]
	// Only the first claim may change the desktop's handle, and with it its origin: nothing is stored in
	// a browser under the old origin yet.
	if in.Body.Name == "" || owner.Claimed || owner.ID != ses.User {
		return res, nil
	}
	c, err := s.options.Computers.Get(ctx, mine[0].ID)
	if err != nil {
		// The link is used up, and the page that comes next tells why the computer can't be woken. The
		// computer can be named later.
		s.log.Warn("a computer got no name when it was claimed", "computer", mine[0].ID, "error", err)
		return res, nil
	}
	// The link is used up: what fails from here on is logged, and can be made up for on the console, but whoever came is signed in.
	by := contract.Person(ses.User)
	if in.Body.Name != mine[0].Name {
		if _, err := c.Act(ctx, view.Action{ID: contract.NewID(), Type: "computer.renamed", By: by, Data: &contract.ComputerRenamed{Name: in.Body.Name}}); err != nil {
			s.log.Warn("a computer got no name when it was claimed", "computer", mine[0].ID, "error", err)
		}
	}
	if _, err := s.options.Identity.Rehandle(ctx, mine[0].ID, in.Body.Name); err != nil {
		s.log.Warn("a computer kept its handle when it was claimed", "computer", mine[0].ID, "error", err)
	}
	if err := begins.As(ctx, mine[0].ID, c, by, in.Body.Scheme); err != nil {
		s.log.Warn("a computer begins with the theme of every new one", "computer", mine[0].ID, "error", err)
	}
	if info, err := s.info(ctx, c); err == nil {
		res.Body = info
	}
	return res, nil
}
