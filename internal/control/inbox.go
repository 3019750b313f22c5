package control

import (
	"encoding/json"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/control/uploads"
	"choir.dev/choiros/internal/view"
)

// Limits of what a desktop's page may upload: dropped files, and texts that are too long for a prompt.
const (
	inbox    = "inbox"
	maxInbox = 64 << 20
)

// bringIn stores a file that was dropped on a desktop's page under a name that nothing had, in a folder of the
// workspace: the inbox, where none is named. It gives the page no power that its session lacks, for the session
// can run commands in the workspace.
func (s *Server) bringIn(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	query := r.URL.Query()
	name, folder := query.Get("name"), inbox
	if query.Has("folder") {
		folder = query.Get("folder")
	}
	f, err := func() (view.File, error) {
		if err := uploads.Check(folder, name); err != nil {
			return view.File{}, err
		}
		if r.ContentLength > maxInbox {
			return view.File{}, problem.TooLarge(problem.ErrTooLarge)
		}
		ctx, release, err := s.hold(r.Context(), v.holder(), s.still(v, contract.CanWrite)) // what is under way ends with its session
		if err != nil {
			return view.File{}, err
		}
		defer release()
		c, err := s.options.Computers.Get(ctx, v.place.Computer)
		if err != nil {
			return view.File{}, err
		}
		at, err := uploads.FreeName(ctx, c, folder, name)
		if err != nil {
			return view.File{}, err
		}
		f, err := c.PutFile(ctx, v.actor, view.Put{Path: at, If: view.NoVersion}, httpio.Limit(r.Body, maxInbox))
		f.ID = at
		return f, problem.TooLarge(err)
	}()
	if err != nil {
		problem.Write(w, problem.Of(s.log, "bring in a file", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct { // the client has gone if this fails
		Path string `json:"path"`
		Size int64  `json:"size"`
	}{f.ID, f.Size})
}
