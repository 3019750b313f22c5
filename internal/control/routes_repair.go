package control

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/internal/view"
)

// retryAfter is what an answer that is worth another try says, in seconds.
const retryAfter = "2"

// exportTimeout bounds an archive of a computer.
const exportTimeout = 2 * time.Hour

// routeRepair serves what can be done about a computer that does not wake.
func (s *Server) routeRepair(hapi huma.API) {
	register(hapi, s, route(http.MethodPost, atComputer+"/wake", "computers-wake", "Try again to wake a computer that did not wake"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body view.WakeRequest
	}) (*struct{}, error) {
		cid, err := s.named(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		return nil, s.o.Computers.Wake(ctx, cid, in.Body)
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/recover", "computers-recover", "Bring back what is damaged from what else knows it; only what all share closes the others meanwhile"), requestTimeout, func(ctx context.Context, in *AtComputer) (*struct{}, error) {
		cid, err := s.named(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		return nil, s.o.Computers.Recover(ctx, cid)
	})
	streamed(hapi, s, route(http.MethodGet, atComputer+"/export", "computers-export", "A tar archive of a computer's files and events, also of one that does not wake"), "application/x-tar", func(w http.ResponseWriter, r *http.Request, in *AtComputer) error {
		ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
		defer cancel()
		cid, err := s.named(ctx, in.Computer)
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", "application/x-tar")
		h.Set("Content-Disposition", `attachment; filename="`+string(cid)+`.tar"`)
		return s.o.Computers.Export(ctx, cid, deadlined{w, http.NewResponseController(w)})
	})
}
