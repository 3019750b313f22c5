package control

import (
	"io/fs"
	"net/http"

	"github.com/go-chi/chi/v5"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

var schemaName = lazy.Regexp(`^(data/)?[a-z][a-z0-9_.-]{0,80}\.json$`)

// serveSchema serves the JSON Schemas that contract publishes.
func (s *Server) serveSchema(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "*")
	var b []byte
	err := fs.ErrNotExist
	if schemaName().MatchString(name) {
		b, err = fs.ReadFile(contract.Schemas(), name)
	}
	if err != nil {
		problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is no such schema", ""))
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(b) // the client has gone if this fails
}
