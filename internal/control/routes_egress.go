package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

func (s *Server) routeEgress(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, atComputer+"/egress", "egress-list", "Which hosts were reached and how many bytes passed, those of most bytes first"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Run string `query:"run" maxLength:"36" doc:"only this run's boxes"`
	}) (*outPage[view.Traffic], error) {
		if in.Run != "" {
			if err := contract.ValidID("run", in.Run); err != nil {
				return nil, err
			}
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		list, err := c.Egress(ctx, in.Run)
		return listOf(list, false), err
	})
}
