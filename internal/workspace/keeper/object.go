package keeper

import (
	"context"
	"errors"
	"fmt"

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
	for _, p := range escapedPaths(string(req.Path)) {
		if id, err := e.nameOf(ctx, commit+":"+p); err != nil || id != "" {
			return IDRequest{ID: id}, fault.Wrap(op, err)
		}
	}
	return IDRequest{}, fault.New(op, fault.NotFound, "", fmt.Errorf("checkpoint %s has no %q", short(commit), req.Path.Shown()))
}
