package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

var errNotConsole = errors.New("approvals are answered on the console, or by the owner's own program on this machine")

func (s *Server) routeApprovals(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, atComputer+"/approvals", "approvals-list", "What waits for a person, newest first"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Paged
		All bool `query:"all" doc:"answered ones too"`
	}) (*outPage[view.Approval], error) {
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		list, more, err := c.Approvals(ctx, in.All, in.Before, in.Limit)
		return listOf(list, more), err
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/approvals/{approval}", "approvals-answer", "Allow or deny it, once"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Approval string `path:"approval" maxLength:"36"`
		Body     view.Decision
	}) (*out[view.Acted], error) {
		// A grant of power is a person's: of the console's session, which no desktop
		// has, or of the program whose token is in a file that only the owner reads.
		if caller := callerOf(ctx); caller.session == nil && !caller.machine && !defence.Off(defence.ApprovalConsole) {
			return nil, fault.New("", fault.Denied, "Open the console in a browser.", errNotConsole)
		}
		if err := contract.ValidID("approval", in.Approval); err != nil {
			return nil, err
		}
		c, err := s.governed(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		done, err := c.Decide(ctx, callerOf(ctx).user, in.Approval, in.Body)
		return &out[view.Acted]{done}, err
	})
}
