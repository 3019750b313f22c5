package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wanted"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Restore makes a checkpoint of everything, then changes the live tree to an earlier state,
// as a new commit. History is never rewritten, so a restore can be undone, and the undo
// too.
func (e *Engine) Restore(ctx context.Context, req wire.RestoreRequest) (wire.RestoreReply, error) {
	const op = "keeper.Restore"
	if err := checkPaths(req.Paths); err != nil {
		return wire.RestoreReply{}, fault.Wrap(op, err)
	}
	for _, p := range req.Keep {
		if err := wire.CheckPath(string(p), false); err != nil {
			return wire.RestoreReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("path %q %w", wire.Short(string(p)), err))
		}
	}
	if !req.DryRun {
		if err := publish.CheckPlanID(req.ID); err != nil {
			return wire.RestoreReply{}, fault.Wrap(op, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.restore(ctx, req)
	return reply, fault.Wrap(op, err)
}

func (e *Engine) restore(ctx context.Context, req wire.RestoreRequest) (wire.RestoreReply, error) {
	if err := e.moves.RollForward(ctx); err != nil {
		return wire.RestoreReply{}, err
	}
	req, err := e.named(ctx, req)
	if err != nil {
		return wire.RestoreReply{}, err
	}
	to, err := e.store.Resolve(ctx, req.To)
	if err != nil {
		return wire.RestoreReply{}, err
	}
	toTree, err := e.treeish(ctx, to, "")
	if err != nil {
		return wire.RestoreReply{}, err
	}
	reply := wire.RestoreReply{To: to, Paths: req.Paths, Undo: req.Undo}
	if req.DryRun {
		err := e.previewRestore(ctx, &reply, toTree, req)
		if err != nil {
			return wire.RestoreReply{}, err
		}
		return reply, nil
	}
	safety := req.Note
	safety.Kind, safety.Message, safety.Verified = "safety", "Before going back to "+to[:12], "unknown"
	s, err := e.checkpoint(ctx, wire.CheckpointRequest{Note: safety})
	if err != nil {
		return wire.RestoreReply{}, err
	}
	reply.Safety, reply.LeftOut = &s, s.LeftOut
	e.crash("restore.safe")
	way, err := e.planRestore(ctx, &reply, toTree, req)
	if err != nil {
		return wire.RestoreReply{}, err
	}
	if err := e.saveRestore(ctx, way, restoreNote(req, to, s.Commit.Commit, way, e.scanner.NotInNow()), req.ID); err != nil {
		return wire.RestoreReply{}, err
	}
	applied, err := e.apply(ctx, req.ID)
	reply.Applied = &applied
	way.foreseen(applied.Conflicts)
	reply.Stay(applied.Conflicts)
	return reply, err
}

// named turns a request, however it is expressed, into one that names the checkpoint and
// the paths.
func (e *Engine) named(ctx context.Context, req wire.RestoreRequest) (wire.RestoreRequest, error) {
	n := len(req.Revert)
	switch {
	case req.Undo:
		commit, last, err := e.lastRestore(ctx)
		if err != nil {
			return req, err
		}
		req.To, req.Paths = last.Safety, last.Paths
		if last.Part {
			req.Revert = []wire.Reverted{{Commit: commit}}
		}
	case n > maxReverted:
		return req, fault.New("", fault.Exhausted, "Restore the checkpoint before it instead.", fmt.Errorf("%d checkpoints are to be taken back; at most %d are at once", n, maxReverted))
	case n > 0:
		id, err := e.store.Resolve(ctx, req.Revert[n-1].Commit)
		if err != nil {
			return req, err
		}
		before, err := e.store.Parent(ctx, id)
		if err != nil {
			return req, err
		}
		req.To = cmp.Or(before, id) // the first has nothing before it
	case req.To == "":
		return req, fault.New("", fault.Invalid, "`choir checkpoints` lists what there is.", fmt.Errorf("no checkpoint is named"))
	}
	return req, nil
}

// previewRestore fills in reply what a restore would do, without doing it.
func (e *Engine) previewRestore(ctx context.Context, reply *wire.RestoreReply, toTree string, req wire.RestoreRequest) error {
	cap, err := e.scanner.Capture(ctx, true)
	if err != nil {
		return err
	}
	reply.LeftOut = cap.LeftOut("")
	defer e.scanner.Index.Take(cap)()
	way, err := e.planRestore(ctx, reply, toTree, req)
	if err != nil {
		return err
	}
	reply.Stay(append(way.conflicts, way.stay...))
	return nil
}

// restoreNote is the note in a restore's commit.
func restoreNote(req wire.RestoreRequest, to, safety string, way restorePlan, notIn wire.NotIn) wire.Note {
	note := req.Note
	note.Kind, note.Files, note.NotIn = "restore", len(way.steps), notIn
	if note.Message == "" {
		note.Message = "Back to " + to[:12]
		if req.Undo {
			note.Message = "Undo: " + note.Message
		}
	}
	note.Restore = &wire.Restore{To: to, Safety: safety, Paths: way.paths(req), Part: way.part(req), Undo: req.Undo, Cause: req.Cause}
	return note
}

// saveRestore writes a restore's commit and plan durably; nothing is applied yet.
func (e *Engine) saveRestore(ctx context.Context, way restorePlan, note wire.Note, id string) error {
	if err := e.moves.ClearPlan(id); err != nil {
		return err
	}
	return e.store.Batch(func(flush func() error) error {
		c, err := e.moves.MakeCommit(ctx, way.tree, e.moves.Head, note)
		if err != nil {
			return err
		}
		plan := publish.Plan{ID: id, Kind: "restore", From: e.moves.Head, Commit: c.Commit, Tree: way.tree, Base: e.moves.Head, Ops: way.steps, Conflicts: way.conflicts}
		if err := errors.Join(e.store.ForceRef(ctx, publish.PublishRef(id), c.Commit), e.moves.SavePlan(plan)); err != nil {
			return err
		}
		return flush()
	})
}

// restorePlan is what a restore will do: the steps from the live tree to the wanted tree.
type restorePlan struct {
	steps     []publish.Step
	tree      string          // the wanted one
	conflicts []wire.Conflict // what can't be undone because it changed since
	stay      []wire.Conflict // steps that are known to be impossible
}

// foreseen replaces the reason of paths that stayed by the one that was foreseen: applying
// a step only finds that something is there.
func (w restorePlan) foreseen(stayed []wire.Conflict) {
	why := map[wire.Path]string{}
	for _, c := range w.stay {
		why[c.Path] = c.Reason
	}
	for i, c := range stayed {
		stayed[i].Reason = cmp.Or(why[c.Path], c.Reason)
	}
}

// maxReverted bounds how many commits are undone at once, and maxWayPaths how many paths a
// restore names.
const maxReverted, maxWayPaths = 1000, 200

// paths are the paths of a restore: those of the request or, when commits are undone, those
// that this changes, so that undoing the restore touches nothing else.
func (w restorePlan) paths(req wire.RestoreRequest) []wire.Path {
	if len(req.Revert) == 0 || len(req.Paths) > 0 || len(w.steps) > maxWayPaths {
		return req.Paths
	}
	var out []wire.Path
	for _, s := range w.steps {
		out = append(out, s.Path)
	}
	return out
}

// part says that more paths change than are named, but not everything.
func (w *restorePlan) part(req wire.RestoreRequest) bool {
	return len(req.Revert) > 0 && len(req.Paths) == 0 && len(w.steps) > maxWayPaths
}

// planRestore plans a restore from what is captured now, and fills in reply what it
// changes. A dry run and the restore itself both use it.
func (e *Engine) planRestore(ctx context.Context, reply *wire.RestoreReply, toTree string, req wire.RestoreRequest) (restorePlan, error) {
	live, err := e.scanner.Index.Write(ctx, e.store)
	if err != nil {
		return restorePlan{}, err
	}
	w := wanted.New(e.store, e.scanner.Index)
	var conflicts []wire.Conflict
	if len(req.Revert) > 0 {
		conflicts, err = w.Revert(ctx, live, req.Revert, req.Except)
		w.Only(req.Paths)
	} else {
		err = w.Becomes(ctx, live, toTree, req.Paths)
	}
	if err != nil {
		return restorePlan{}, err
	}
	w.MakeRoom()
	if len(req.Revert) > 0 || len(req.Paths) == 0 {
		w.LeaveFiles(req.Keep)
	}
	ignored, err := w.LeaveIgnored(ctx)
	if err != nil {
		return restorePlan{}, err
	}
	changes := w.List()
	out := restorePlan{steps: publish.Steps(changes), conflicts: append(conflicts, ignored...)}
	if out.tree, err = e.store.Patch(ctx, live, changes); err != nil {
		return restorePlan{}, err
	}
	if err := e.stepsAllThere(ctx, out.steps); err != nil {
		return restorePlan{}, err
	}
	var filled []wire.Path
	if out.stay, filled, err = e.moves.Obstacles(ctx, out.steps); err != nil {
		return restorePlan{}, err
	}
	reply.DiffReply, err = e.store.Diff(ctx, live, out.tree, wire.DiffRequest{MaxBytes: -1, Index: true})
	reply.Unchanged(filled)
	return out, err
}

// lastRestore finds the newest restore in the history, and its commit.
func (e *Engine) lastRestore(ctx context.Context) (string, wire.Restore, error) {
	// A message may contain such a line too, whoever wrote it.
	for from := e.moves.Head; from != ""; {
		commits, err := e.store.LogMatching(ctx, 50, "^Choir-Restore: ", from)
		if err != nil {
			return "", wire.Restore{}, err
		}
		from = ""
		for _, c := range commits {
			if c.Restore != nil {
				return c.Commit, *c.Restore, nil
			}
			from = c.Parent
		}
	}
	return "", wire.Restore{}, fault.New("", fault.NotFound, "`choir checkpoints` lists what you can restore.", fmt.Errorf("nothing was restored yet, so there is nothing to undo"))
}
