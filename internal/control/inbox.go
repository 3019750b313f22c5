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

// What a desktop's page may bring in: a dropped file, or a text too long to say.
const (
	inbox       = "inbox"
	maxInbox    = 64 << 20
	inboxNames  = 100 // files of one name
	maxFileName = 200
)

// bringIn puts what a page was given into the workspace, beside what is there:
// it gives the page no power that its session lacks, since that runs commands
// there.
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

// freeName is a path in the inbox that nothing has.
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
