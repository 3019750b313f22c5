package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// shellPaths is what Rewind takes back: the desktop's source and its theme.
var shellPaths = []string{"choiros", "artifacts/system/theme.json"}

func (s *Server) routeHistory(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, atComputer+"/checkpoints", "checkpoints-list", "Checkpoints, newest first"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Paged
	}) (*outPage[view.Checkpoint], error) {
		c, err := s.history(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		list, more, err := c.Checkpoints(ctx, in.Before, in.Limit)
		return listOf(list, more), err
	})
	register(hapi, s, route(http.MethodGet, atComputer+"/checkpoints/{checkpoint}", "checkpoints-get", "One checkpoint, and what is not in it"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		ID string `path:"checkpoint" maxLength:"64" doc:"its commit, or the first 7 digits of it or more"`
	}) (*out[view.Checkpoint], error) {
		if err := view.ValidRevision("checkpoint", in.ID); err != nil {
			return nil, err
		}
		c, err := s.history(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		k, err := c.ShowCheckpoint(ctx, in.ID)
		return &out[view.Checkpoint]{k}, err
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/checkpoints", "checkpoints-create", "Commit the workspace if it changed"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body struct {
			Message string `json:"message,omitempty" maxLength:"4096"`
		}
	}) (*out[view.Checkpointed], error) {
		c, err := s.history(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		done, err := c.Checkpoint(ctx, callerOf(ctx).user, in.Body.Message)
		return &out[view.Checkpointed]{done}, err
	})
	register(hapi, s, route(http.MethodGet, atComputer+"/diff", "checkpoints-diff", "What differs between two checkpoints"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		From string `query:"from" maxLength:"64" doc:"empty: the parent of to"`
		To   string `query:"to" maxLength:"64" doc:"empty: the live tree"`
		Path string `query:"path" maxLength:"4096" doc:"only this file or folder"`
	}) (*out[view.Diff], error) {
		r := view.DiffRequest{From: in.From, To: in.To, Path: in.Path}
		if err := r.Validate(); err != nil {
			return nil, err
		}
		c, err := s.history(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		d, err := c.Diff(ctx, r)
		return &out[view.Diff]{d}, err
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/restore", "checkpoints-restore", "Go back to a checkpoint, to before a run, or to before the last restore"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body view.RestoreRequest
	}) (*out[view.Restored], error) {
		return s.restore(ctx, in.Computer, in.Body)
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/undo", "checkpoints-undo", "Undo the last restore, the undo too"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body struct {
			DryRun bool `json:"dry_run,omitempty"`
		}
	}) (*out[view.Restored], error) {
		return s.restore(ctx, in.Computer, view.RestoreRequest{Undo: true, DryRun: in.Body.DryRun})
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/rewind", "checkpoints-rewind", "Take the desktop's source and theme back to the last good checkpoint"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body struct {
			To     string `json:"to,omitempty" maxLength:"64" doc:"empty: the last good one"`
			DryRun bool   `json:"dry_run,omitempty"`
			// Nobody pressed a button.
			Unasked bool `json:"unasked,omitempty" doc:"only if the desktop is broken by a task's edits that no check has passed, and nothing else would be taken back"`
		}
	}) (*out[view.Restored], error) {
		to := in.Body.To
		if to == "" {
			c, err := s.governed(ctx, in.Computer)
			if err != nil {
				return nil, err
			}
			f, err := c.Frame(ctx)
			if err != nil {
				return nil, err
			}
			if to = f.Desktop.LastGood; to == "" {
				return nil, fault.New("", fault.NotFound, "Name a checkpoint to go back to.", errors.New("no checkpoint is known to be good yet"))
			}
		}
		return s.restore(ctx, in.Computer, view.RestoreRequest{To: to, Paths: shellPaths, DryRun: in.Body.DryRun, Unasked: in.Body.Unasked})
	})
}

func (s *Server) restore(ctx context.Context, computer string, r view.RestoreRequest) (*out[view.Restored], error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c, err := s.history(ctx, computer)
	if err != nil {
		return nil, err
	}
	r.User = callerOf(ctx).user
	done, err := c.Restore(ctx, r)
	return &out[view.Restored]{done}, err
}
