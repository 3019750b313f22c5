package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/recall"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// look serves the Director's calls of tools that only read, which are made in a box of its run.
func (a *directorAPI) look(w http.ResponseWriter, req *http.Request) {
	t, known := a.run.dispatcher.tools.Lookup(req.PathValue("name"))
	if !known || !a.looks(t.Name) && t.Name != recall.Name {
		loops.Refuse(w, 0, fault.New("", fault.Denied, "", fmt.Errorf("the Director has no tool %q here", summary.OneLine(req.PathValue("name"), 60))))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(t.Limits.In)))
	if err != nil {
		loops.Refuse(w, http.StatusRequestEntityTooLarge, err)
		return
	}
	res, err := a.looked(req.Context(), t, body)
	if err != nil {
		loops.Refuse(w, 0, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(res) // the loop is gone if this fails
}

// looks reports whether a tool shows the Director files, in a box of its run.
func (a *directorAPI) looks(name string) bool {
	t, known := a.run.dispatcher.tools.Lookup(name)
	return known && t.For(tool.Director) && t.Executor == tool.Box
}

func (a *directorAPI) looked(ctx context.Context, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	if err := a.run.dispatcher.tools.Check(t.Name, args); err != nil {
		return tool.Result{}, fault.New("", fault.Invalid, "", err)
	}
	if t.Executor != tool.Box {
		var res tool.Result
		a.run.Story(func(s *story.Run) {
			res = recall.Show(args, func(call string) (recall.Returned, string) { return recall.OfTurns(s.Turns, call) })
		})
		return res, nil
	}
	res, err := a.eyes.Call(ctx, t, args)
	res.Data = nil
	if err == nil {
		err = loops.KeepPictures(ctx, a.run.dispatcher.options.Blobs, a.run.dispatcher.options.CID, &res)
	}
	return res, err
}

// brief is what the Director is told of the run that it continues, and before its first turn of the tree, as
// an attempt's loop is. The rehearsal reads nothing of it.
func (r *run) brief(ctx context.Context, api *directorAPI, resumes bool) (string, error) {
	if resumes && r.story.Prompt.Continues == "" {
		return "", nil
	}
	chosen, _ := r.Chosen()
	provider, _, err := r.dispatcher.options.Models.Resolve(ctx, contract.KindDirector, chosen)
	if err != nil || provider == ports.Rehearsal {
		return "", err
	}
	told, err := r.continued(ctx)
	if err != nil || resumes {
		return told, err
	}
	recent, err := r.recent(ctx)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(r.tried() + "\n\n" + told + "\n\n" + recent + "\n\n" + r.dispatcher.briefs.Text(ctx, r.story.Prompt.Text, api.eyes.Call)), nil
}
