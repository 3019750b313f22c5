package control

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/mcp"
	"choir.dev/choiros/internal/control/problem"
)

// mcpPath is where a computer is offered to models over the Model Context Protocol.
const mcpPath = "/api/computers/{computer}/mcp"

// serveMCP answers a request over the Model Context Protocol. Whoever may use the computer may ask; each
// call is asked of the API again, with the same credentials, and decided there.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r.Context())
	who := mcp.Caller{ID: c.stream()}
	tw := &httpio.Answer{ResponseWriter: w}
	ctx, release, err := s.hold(r.Context(), holderOf(c), func(ctx context.Context) (_ contract.CID, err error) {
		if err = s.present(ctx, c); err == nil {
			who.Computer, who.Actor, err = s.named(ctx, c, chi.URLParam(r, "computer"))
		}
		return who.Computer, err
	})
	if err == nil {
		defer release()
		err = s.mcp.Serve(tw, r.WithContext(ctx), who)
	}
	if err != nil && !tw.Started {
		problem.Write(tw, problem.Of(s.log, "mcp", err))
	}
}
