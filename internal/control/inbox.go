package control

import (
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
	maxFileName = 200
)

// bringIn stores a file that was dropped on a desktop's page under a new name in the workspace's inbox.
// It gives the page no power that its session lacks, for the session can run commands in the workspace.
func (s *Server) bringIn(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	name := r.URL.Query().Get("name")
	f, err := func() (view.File, error) {
		if err := view.ValidName("name", name); err != nil {
			return view.File{}, err
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
		at, err := freeName(r.Context(), c, name)
		if err != nil {
			return view.File{}, err
		}
		f, err := c.PutFile(r.Context(), v.actor, view.Put{Path: at}, httpio.Limit(r.Body, maxInbox))
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

// freeName returns a path in the inbox that no file has.
func freeName(ctx context.Context, c Computer, name string) (string, error) {
	ext := path.Ext(name)
	for n := 1; n <= inboxNames; n++ {
		at := path.Join(inbox, name)
		if n > 1 {
			at = path.Join(inbox, fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext))
		}
		switch _, err := c.ListFiles(ctx, at, "", 1); {
		case fault.Is(err, fault.NotFound):
			return at, nil
		case err != nil:
			return "", err
		}
	}
	return "", fault.New("", fault.Conflict, "Give it another name.", errors.New("there are too many files of this name in "+inbox))
}
