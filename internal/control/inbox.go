package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Limits of what a desktop's page may upload: dropped files, and texts that are too long for a prompt.
const (
	inbox       = "inbox"
	maxInbox    = 64 << 20
	inboxNames  = 100 // how many files may share one name
	maxFileName = 255 // as file systems have it
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
		if err := view.ValidName("name", name); err != nil {
			return view.File{}, err
		}
		if folder != "" { // the workspace's root
			if err := contract.ValidPath("folder", folder); err != nil {
				return view.File{}, err
			}
		}
		if len(name) > maxFileName {
			return view.File{}, &contract.FieldError{Field: "name", Reason: "is too long"}
		}
		if r.ContentLength > maxInbox {
			return view.File{}, problem.TooLarge(problem.ErrTooLarge)
		}
		c, err := s.options.Computers.Get(r.Context(), v.place.Computer)
		if err != nil {
			return view.File{}, err
		}
		at, err := freeName(r.Context(), c, folder, name)
		if err != nil {
			return view.File{}, err
		}
		f, err := c.PutFile(r.Context(), v.actor, view.Put{Path: at, If: view.NoVersion}, httpio.Limit(r.Body, maxInbox))
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

// freeName returns a path in a folder that nothing has.
func freeName(ctx context.Context, c Computer, folder, name string) (string, error) {
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" { // .profile
		stem, ext = name, ""
	}
	for n := 1; n <= inboxNames; n++ {
		at := path.Join(folder, name)
		if n > 1 {
			number := fmt.Sprintf("-%d%s", n, ext)
			at = path.Join(folder, contract.Clip(stem, maxFileName-len(number))+number)
		}
		switch _, err := c.ListFiles(ctx, at, "", 1); {
		case fault.Is(err, fault.NotFound):
			return at, nil
		case err != nil:
			return "", err
		}
	}
	return "", fault.New("", fault.Conflict, "Give it another name.", errors.New("there are too many files of this name in "+cmp.Or(folder, "the workspace")))
}
