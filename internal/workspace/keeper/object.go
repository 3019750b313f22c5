package keeper

import (
	"context"
	"errors"

	"choir.dev/choiros/internal/fault"
)

// ObjectRequest names a path of a commit; no commit means the newest checkpoint.
type ObjectRequest struct {
	Commit string `json:"commit,omitempty"`
	Path   Path   `json:"path"`
}

// Object returns the git id of what a commit holds at a path, a tree's for a
// directory: two commits that hold the same there give the same id.
func (e *Engine) Object(ctx context.Context, req ObjectRequest) (IDRequest, error) {
	const op = "keeper.Object"
	if err := badPath(string(req.Path), false); err != nil {
		return IDRequest{}, fault.Wrap(op, err)
	}
	commit := e.Head()
	if req.Commit != "" {
		var err error
		if commit, err = e.resolve(ctx, req.Commit); err != nil {
			return IDRequest{}, fault.Wrap(op, err)
		}
	}
	if commit == "" {
		return IDRequest{}, fault.New(op, fault.NotFound, "", errors.New("there is no checkpoint yet"))
	}
	var err error
	for _, p := range escapedPaths(string(req.Path)) {
		var id string
		if id, err = e.gitLine(ctx, "rev-parse", "--verify", "--quiet", commit+":"+p); err == nil {
			return IDRequest{ID: id}, nil
		}
	}
	return IDRequest{}, fault.New(op, fault.NotFound, "", err)
}
