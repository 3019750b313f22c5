package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

func (s *Server) routeFiles(hapi huma.API) {
	streamed(hapi, s, rpc.FilesGet, "", "application/octet-stream", s.getFile)
	streamed(hapi, s, rpc.FilesPut, "application/octet-stream", "application/json", func(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.PutRequest) error {
		c, err := s.options.Computers.Get(r.Context(), cid)
		if err != nil {
			return err
		}
		return s.putFile(w, r, c, in)
	})
	streamed(hapi, s, rpc.FilesAddTar, "application/x-tar", "application/json", func(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.AddTarRequest) error {
		c, err := s.options.Computers.Get(r.Context(), cid)
		if err != nil {
			return err
		}
		origin := in.Origin
		if origin == "" {
			origin = in.Name
		}
		a, err := c.AddTar(r.Context(), actorOf(r.Context()), in.Name, origin, httpio.Limit(r.Body, s.options.AddBytes))
		if err != nil {
			return problem.TooLargeTo(err, fmt.Sprintf("it has more than %d MiB; nothing of it was brought in", s.options.AddBytes>>20),
				"Raise storage.add_mb, or add it in several smaller folders.")
		}
		return writeJSON(w, a)
	})
	streamed(hapi, s, rpc.ComputerExport, "", "application/x-tar", s.export)
}

// exportTimeout bounds how long an export may take.
const exportTimeout = 2 * time.Hour

// export streams an archive of a computer's files and events.
func (s *Server) export(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.Of) error {
	ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
	defer cancel()
	h := w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Content-Disposition", `attachment; filename="`+string(cid)+`.tar"`)
	return s.options.Computers.Export(ctx, cid, httpio.Deadlined(w))
}

// getFile streams a file as an attachment of type application/octet-stream, so that a browser never shows
// a file of a workspace as a page of the console's origin.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.OnPath) error {
	c, err := s.options.Computers.Get(r.Context(), cid)
	if err != nil {
		return err
	}
	content, f, err := c.OpenFile(r.Context(), in.Path)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(path.Base(f.ID)))
	h.Set("Choir-Mode", f.Mode)
	h.Set("Cache-Control", "no-cache")
	tagged(w, f)
	return httpio.ServeContent(w, r, &httpio.Ranged{From: content, Size: f.Size, Open: func(at int64) (io.ReadCloser, error) { return c.ReadFile(r.Context(), f, at) }})
}

func writeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(b)
	return err
}

// tagged sets the ETag of an answer to the file's version.
func tagged(w http.ResponseWriter, f view.File) {
	if f.Version != "" {
		w.Header().Set("ETag", `"`+f.Version+`"`)
	}
}

// putFile replaces or makes a file if the request's conditions hold.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request, c Computer, in *rpc.PutRequest) error {
	put := view.Put{Path: in.Path, Mode: in.Mode}
	var err error
	if put.If, err = in.Condition(); err != nil {
		return err
	}
	f, err := c.PutFile(r.Context(), actorOf(r.Context()), put, httpio.Limit(r.Body, maxFile))
	if err != nil {
		return problem.TooLarge(unmet(in.Conditional(), err))
	}
	tagged(w, f)
	return writeJSON(w, f)
}
