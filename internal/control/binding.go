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
	errNoLinks    = errors.New("only the owner's own program on this machine can make sign-in links")
)

const openConsole = "Open the console in a browser."

// httpBinding lets callers of the declared methods in over HTTP.
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

// unmet says of a request that was to be carried out only on what its caller named,
// and met something else, that this was why.
func unmet(conditional bool, err error) error {
	if !conditional || !fault.Is(err, fault.Conflict) {
		return err
	}
	return problem.Refuse(http.StatusPreconditionFailed, fault.Conflict, fault.Answer(err), fault.HintOf(err))
}

// reach returns the computer that a request names and who the caller is in it, if they may ask this of
// it, once it is as the method needs it; what is asked counts by its effect.
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

// admit has a computer be as a method needs it, and counts what is asked.
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

// may refuses a caller who is of a kind that may not call the method. A grant of
// power is a person's: of the console's session, which no desktop has, or of the
// program whose token is in a file that only the owner reads.
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
