package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
)

var (
	errNotConsole = errors.New("this is for people on the console, or for the owner's own program on this machine: not for a token that was handed out")
	errNoLinks    = errors.New("only the owner's own program on this machine can make sign-in links of others")
)

const openConsole = "Open the console in a browser."

// httpBinding serves the methods that package rpc declares over HTTP.
type httpBinding struct {
	server *Server
	api    huma.API
}

// API implements rpc.HTTPBinding.
func (d httpBinding) API() huma.API { return d.api }

// Operation implements rpc.HTTPBinding.
func (d httpBinding) Operation(m rpc.Declared) huma.Operation {
	op := route(m.HTTP.Verb, m.Address(), m.HTTP.ID, m.Summary)
	op.Description = m.Detail
	return limitedTo(op, m.Limit)
}

// Reach implements rpc.HTTPBinding.
func (d httpBinding) Reach(ctx context.Context, m rpc.Declared, computer string) (rpc.Table, rpc.Caller, error) {
	cid, actor, err := d.server.reach(ctx, m, computer)
	who := rpc.Caller{Computer: cid, Actor: actor, Session: callerOf(ctx).stream()}
	if m.Host || err != nil {
		return d.server.own, who, err
	}
	if m.Needs == rpc.History {
		h, err := d.server.options.Computers.History(ctx, cid)
		if err != nil {
			return nil, who, err
		}
		return h.Methods(), who, nil
	}
	awake, err := d.server.options.Computers.Get(ctx, cid)
	if err != nil {
		return nil, who, err
	}
	return awake.Methods(), who, nil
}

// Refuse implements rpc.HTTPBinding.
func (d httpBinding) Refuse(m rpc.Declared, conditional bool, err error) error {
	return problem.Of(d.server.log, m.HTTP.ID, unmet(conditional, err))
}

// unmet turns the conflict of a conditional request (If-Match, If-None-Match) into 412 Precondition
// Failed; other errors are returned as they are.
func unmet(conditional bool, err error) error {
	if !conditional || !fault.Is(err, fault.Conflict) {
		return err
	}
	return problem.Refuse(http.StatusPreconditionFailed, fault.Conflict, fault.Answer(err), fault.HintOf(err))
}

// reach returns the computer that a request names and the caller's actor in it, after checking that the
// actor may call the method. It then makes the computer available as the method needs it, and counts the
// call against the caller's quota.
func (s *Server) reach(ctx context.Context, m rpc.Declared, computer string) (cid contract.CID, who contract.Actor, err error) {
	if err := may(ctx, m.Callers); err != nil {
		return "", who, err
	}
	c := callerOf(ctx)
	if m.Needs == rpc.Plane {
		who, err = s.granted(ctx, contract.Person(c.user), c.scope, "")
	} else {
		cid, who, err = s.named(ctx, c, computer)
	}
	if err == nil {
		err = m.Permits(who)
	}
	if err != nil || m.Needs == rpc.Plane {
		return "", who, err
	}
	return cid, who, s.admit(ctx, m, cid)
}

// admit wakes a computer, or opens its history, as a method needs it, and counts the call against the
// quota that belongs to the method's effect.
func (s *Server) admit(ctx context.Context, m rpc.Declared, cid contract.CID) (err error) {
	switch m.Needs {
	case rpc.Awake:
		_, err = s.options.Computers.Get(ctx, cid)
	case rpc.History:
		_, err = s.options.Computers.History(ctx, cid)
	}
	if err != nil {
		return err
	}
	switch m.Effect {
	case rpc.Stores:
		return s.take(ctx, cid, s.quota.Take)
	case rpc.Governs:
		return s.govern(ctx, cid)
	}
	return nil
}

// may refuses kinds of callers that the method does not allow. Methods that grant power are for people
// only: for a session of the console, which no desktop has, or for the program that holds the owner's
// token, which is in a file that only the owner can read.
func may(ctx context.Context, allowed rpc.Callers) error {
	c, came := callerOf(ctx), rpc.Program
	switch {
	case c.session != nil:
		came = rpc.Console
	case c.machine:
		came = rpc.Owner
	}
	if allowed&came != 0 {
		return nil
	}
	switch {
	case allowed == rpc.Console:
		return fault.New("", fault.Denied, openConsole, errTokenTicket)
	case allowed == rpc.Owner && came == rpc.Console:
		return fault.New("", fault.Denied, "Run choir up again: it prints a link.", errNoLinks)
	}
	if defence.Off(defence.ApprovalConsole) {
		return nil
	}
	if allowed == rpc.Owner {
		return fault.New("", fault.Denied, "Run choir up again: it prints a link.", errNoLinks)
	}
	return fault.New("", fault.Denied, openConsole, errNotConsole)
}
