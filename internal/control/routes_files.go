package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// OnPath is what operations on one file take.
type OnPath struct {
	AtComputer
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"relative to the workspace's root"`
}

func (s *Server) routeFiles(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, atComputer+"/files", "files-list", "A folder's entries by name, or the one entry of a file"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Path  string `query:"path" maxLength:"4096" doc:"empty: the workspace's root"`
		After string `query:"after" maxLength:"4096" doc:"only what comes after this path"`
		Limit int    `query:"limit" minimum:"1" maximum:"2000" default:"1000"`
	}) (*outPage[view.File], error) {
		if in.Path != "" {
			if err := contract.ValidPath("path", in.Path); err != nil {
				return nil, err
			}
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		after := ""
		if in.After != "" {
			after = path.Base(in.After)
		}
		list, err := c.ListFiles(ctx, in.Path, after, in.Limit)
		return listOf(list, len(list) >= in.Limit), err
	})
	streamed(hapi, s, route(http.MethodGet, atComputer+"/content", "files-get", "A file's content"), "application/octet-stream", s.getFile)
	put := route(http.MethodPut, atComputer+"/content", "files-put", "Replace or make a file")
	put.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/octet-stream": {}}}
	streamed(hapi, s, put, "application/json", func(w http.ResponseWriter, r *http.Request, in *OnPath) error {
		if err := contract.ValidPath("path", in.Path); err != nil {
			return err
		}
		c, err := s.computer(r.Context(), in.Computer)
		if err != nil {
			return err
		}
		f, err := c.PutFile(r.Context(), callerOf(r.Context()).user, in.Path, &limited{r.Body, maxFile})
		if err != nil {
			return tooLarge(err)
		}
		return writeJSON(w, f)
	})
	register(hapi, s, route(http.MethodDelete, atComputer+"/content", "files-remove", "Remove a file, or a folder with recursive"), longTimeout, func(ctx context.Context, in *struct {
		OnPath
		Recursive bool `query:"recursive"`
	}) (*struct{}, error) {
		if err := contract.ValidPath("path", in.Path); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		return nil, c.RemoveFile(ctx, callerOf(ctx).user, in.Path, in.Recursive)
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/files/move", "files-move", "Give a file or folder another name, where nothing is"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body view.MoveRequest
	}) (*out[view.File], error) {
		if err := errors.Join(contract.ValidPath("from", in.Body.From), contract.ValidPath("to", in.Body.To)); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		f, err := c.MoveFile(ctx, callerOf(ctx).user, in.Body.From, in.Body.To)
		return &out[view.File]{f}, err
	})
	register(hapi, s, route(http.MethodGet, atComputer+"/trash", "trash-list", "What was removed or overwritten in the last week, newest first"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Before string `query:"before" maxLength:"64" doc:"only what is older than this entry"`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	}) (*outPage[view.Trashed], error) {
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		list, more, err := c.Trash(ctx, in.Before, in.Limit)
		return listOf(list, more), err
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/trash/{entry}/put-back", "trash-put-back", "Bring something back from the trash, where nothing is"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Entry string `path:"entry" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$"`
		Body  view.PutBackRequest
	}) (*out[view.File], error) {
		if in.Body.To != "" {
			if err := contract.ValidPath("to", in.Body.To); err != nil {
				return nil, err
			}
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		f, err := c.PutBack(ctx, callerOf(ctx).user, in.Entry, in.Body.To)
		return &out[view.File]{f}, err
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/add", "files-add-url", "Bring a repository in by URL, through egress"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body view.AddRequest
	}) (*out[view.Added], error) {
		if err := in.Body.Validate(); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		a, err := c.AddURL(ctx, callerOf(ctx).user, in.Body)
		return &out[view.Added]{a}, err
	})
	tar := route(http.MethodPost, atComputer+"/add/tar", "files-add-tar", "Bring a folder in as a tar stream")
	tar.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/x-tar": {}}}
	streamed(hapi, s, tar, "application/json", func(w http.ResponseWriter, r *http.Request, in *struct {
		AtComputer
		Name   string `query:"name" required:"true" minLength:"1" maxLength:"200" doc:"folder under workspace/"`
		Origin string `query:"origin" maxLength:"4096" doc:"what the sender calls it"`
	}) error {
		if err := view.ValidName("name", in.Name); err != nil {
			return err
		}
		c, err := s.computer(r.Context(), in.Computer)
		if err != nil {
			return err
		}
		origin := in.Origin
		if origin == "" {
			origin = in.Name
		}
		a, err := c.AddTar(r.Context(), callerOf(r.Context()).user, in.Name, origin, &limited{r.Body, s.o.AddBytes})
		if err != nil {
			return tooLargeTo(err, fmt.Sprintf("it has more than %d MiB; nothing of it was brought in", s.o.AddBytes>>20),
				"Raise storage.add_mb, or add it in several smaller folders.")
		}
		return writeJSON(w, a)
	})
}

// getFile streams a file as an attachment of no type: nothing a workspace
// holds is ever a page of the console's origin.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request, in *OnPath) error {
	if err := contract.ValidPath("path", in.Path); err != nil {
		return err
	}
	c, err := s.computer(r.Context(), in.Computer)
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
	if f.Size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
	}
	rc := http.NewResponseController(w)
	n, err := io.Copy(deadlined{w, rc}, content)
	if err == nil && n != f.Size {
		err = errors.New("the file changed while it was read")
	}
	return errors.Join(err, content.Close())
}

func tooLarge(err error) error {
	return tooLargeTo(err, errTooLarge.Error(), "Bring it in by several smaller uploads.")
}

func tooLargeTo(err error, what, hint string) error {
	if errors.Is(err, errTooLarge) {
		return refusal(http.StatusRequestEntityTooLarge, fault.Exhausted, what, hint)
	}
	return err
}
