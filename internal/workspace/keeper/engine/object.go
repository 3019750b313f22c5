package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Object returns the git id of the object that a commit has at a path, for a directory that
// of its tree: the same content gives the same id.
func (e *Engine) Object(ctx context.Context, req wire.ObjectRequest) (wire.IDRequest, error) {
	const op = "keeper.Object"
	if err := badPath(string(req.Path), false); err != nil {
		return wire.IDRequest{}, fault.Wrap(op, err)
	}
	commit := e.Head()
	if req.Commit != "" {
		var err error
		if commit, err = e.store.Resolve(ctx, req.Commit); err != nil {
			return wire.IDRequest{}, fault.Wrap(op, err)
		}
	}
	if commit == "" {
		return wire.IDRequest{}, fault.New(op, fault.NotFound, "", errors.New("there is no checkpoint yet"))
	}
	if id, err := e.store.ObjectAt(ctx, commit, string(req.Path)); err != nil || id != "" {
		return wire.IDRequest{ID: id}, fault.Wrap(op, err)
	}
	return wire.IDRequest{}, fault.New(op, fault.NotFound, "", fmt.Errorf("checkpoint %s has no %q", wire.Short(commit), req.Path.Shown()))
}

// Contains answers wire.ContainsRequest.
func (e *Engine) Contains(ctx context.Context, req wire.ContainsRequest) (wire.ContainsReply, error) {
	const op = "keeper.Contains"
	if len(req.Commits) > wire.MaxContains || len(req.Paths) > wire.MaxContains || len(req.Names) > wire.MaxContains {
		return wire.ContainsReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("at most %d of each can be asked for", wire.MaxContains))
	}
	paths := make([]string, len(req.Paths))
	for i, p := range req.Paths {
		if err := badPath(strings.TrimSuffix(string(p), "/"), false); err != nil {
			return wire.ContainsReply{}, fault.Wrap(op, err)
		}
		paths[i] = string(p)
	}
	out := wire.ContainsReply{Plain: true}
	for _, commit := range req.Commits {
		there, plain, err := e.store.PlainFiles(ctx, commit, paths, req.Names)
		if err != nil || !plain {
			return wire.ContainsReply{}, err
		}
		out.There = append(out.There, there)
	}
	return out, nil
}
