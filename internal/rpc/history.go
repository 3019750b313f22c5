package rpc

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// CheckpointsRequest lists checkpoints.
type CheckpointsRequest struct {
	At
	Paged
}

// ShowCheckpointRequest asks for one.
type ShowCheckpointRequest struct {
	At
	ID string `path:"checkpoint" maxLength:"64" doc:"its commit, or the first 7 digits of it or more"`
}

// Validate implements validation.
func (r ShowCheckpointRequest) Validate() error { return view.ValidRevision("checkpoint", r.ID) }

// CheckpointRequest makes one.
type CheckpointRequest struct {
	At
	Body struct {
		Message string `json:"message,omitempty" maxLength:"4096"`
	}
}

// DiffRequest compares two.
type DiffRequest struct {
	At
	view.DiffRequest
}

// RestoreRequest goes back.
type RestoreRequest struct {
	At
	Body view.RestoreRequest
}

// Validate implements validation.
func (r RestoreRequest) Validate() error { return r.Body.Validate() }

// UndoRequest undoes the last thing that was done.
type UndoRequest struct {
	At
	Body struct {
		DryRun bool   `json:"dry_run,omitempty"`
		Act    uint64 `json:"act,omitempty" doc:"only if this is the last thing that was done: undone.sequence of a dry run"`
	}
}

// RewindRequest rewinds the desktop.
type RewindRequest struct {
	At
	Body struct {
		To     string `json:"to,omitempty" maxLength:"64" doc:"empty: the last good one"`
		DryRun bool   `json:"dry_run,omitempty"`
		// Unasked means that nobody pressed a button.
		Unasked bool `json:"unasked,omitempty" doc:"only if the desktop is broken by a task's edits that no check has passed, and nothing else would be taken back"`
	}
}

// shellPaths is what Rewind restores: the desktop's source and its theme.
var shellPaths = []string{"choiros", contract.ThemePath}

// Restore is the rewind as a restore to a checkpoint.
func (r RewindRequest) Restore(to string) view.RestoreRequest {
	return view.RestoreRequest{To: to, Paths: shellPaths, DryRun: r.Body.DryRun, Unasked: r.Body.Unasked}
}

// Validate implements validation.
func (r RewindRequest) Validate() error {
	if r.Body.To == "" {
		return nil
	}
	return r.Restore(r.Body.To).Validate()
}

// Time travel.
var (
	CheckpointList = list[CheckpointsRequest, view.Checkpoint](Declared{
		Name: "checkpoint.list", Summary: "Checkpoints, newest first",
		HTTP: get("/checkpoints", "checkpoints-list"), May: contract.CanRead, Callers: API | Desktop, Needs: History, Noun: "checkpoints",
		Tool: &Tool{Description: "List the workspace's checkpoints, newest first. Page with before."}})
	CheckpointGet = single[ShowCheckpointRequest, view.Checkpoint](Declared{
		Name: "checkpoint.get", Summary: "One checkpoint, and what is not in it",
		HTTP: get("/checkpoints/{checkpoint}", "checkpoints-get"), May: contract.CanRead, Callers: API, Needs: History})
	CheckpointCreate = single[CheckpointRequest, view.Checkpointed](Declared{
		Name: "checkpoint.create", Summary: "Commit the workspace if it changed",
		HTTP: post("/checkpoints", "checkpoints-create"), May: contract.CanRestore, Callers: API | Desktop, Effect: Governs, Needs: History, Limit: Long,
		Tool: &Tool{Description: "Make a checkpoint of the workspace, if it changed since the last one.", Repeatable: true}})
	CheckpointDiff = single[DiffRequest, view.Diff](Declared{
		Name: "checkpoint.diff", Summary: "What differs between two checkpoints",
		HTTP: get("/diff", "checkpoints-diff"), May: contract.CanRead, Callers: API | Desktop, Needs: History, Limit: Long,
		Tool: &Tool{Description: "What differs between two checkpoints, as a list of changes and a unified diff; without to, up to the files as they are now."}})
	CheckpointRestore = single[RestoreRequest, view.Restored](Declared{
		Name: "checkpoint.restore", Summary: "Go back to a checkpoint, take back a run or the last thing, or have something back from the trash",
		HTTP: post("/restore", "checkpoints-restore"), May: contract.CanRestore, Callers: API | Desktop, Effect: Governs, Needs: History, Limit: Long,
		Tool: &Tool{Description: "Go back: to a checkpoint (to), or take back what a run changed (run), of all files or of paths. It is a new checkpoint and can be undone. With dry_run nothing changes and the answer says what would.", Destructive: true}})
	CheckpointUndo = single[UndoRequest, view.Restored](Declared{
		Name: "checkpoint.undo", Summary: "Undo the last thing that was done, an undo too, and say which",
		HTTP: post("/undo", "checkpoints-undo"), May: contract.CanRestore, Callers: API | Desktop, Effect: Governs, Needs: History, Limit: Long})
	CheckpointRewind = single[RewindRequest, view.Restored](Declared{
		Name: "checkpoint.rewind", Summary: "Take the desktop's source and theme back to the last good checkpoint",
		HTTP: post("/rewind", "checkpoints-rewind"), May: contract.CanRestore, Callers: API, Effect: Governs, Needs: History, Limit: Long})
)
