package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wanted"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Prepare commits the live tree as it is, merges, and journals what is to be
// done. Nothing in the live tree changes. Preparing an id again replaces what
// was prepared, unless it has started.
func (e *Engine) Prepare(ctx context.Context, req wire.PrepareRequest) (wire.PrepareReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.prepare(ctx, req)
	return reply, fault.Wrap("keeper.Prepare", err)
}

func (e *Engine) prepare(ctx context.Context, req wire.PrepareRequest) (reply wire.PrepareReply, err error) {
	reply = wire.PrepareReply{ID: req.ID, Changed: []wire.Path{}}
	if err := errors.Join(publish.CheckPlanID(req.ID), checkPaths(req.Paths)); err != nil {
		return reply, err
	}
	if req.Live || req.Task != "" {
		if err := publish.CheckPlanID(req.Task); err != nil {
			return reply, err
		}
	}
	if err := e.moves.RollForward(ctx); err != nil {
		return reply, err
	}
	if r, done, err := e.moves.LoadResult(req.ID); err != nil {
		return reply, err
	} else if done {
		reply.Done, reply.Commit, reply.Tree, reply.Conflicts, reply.CommitNote = true, r.Commit.Commit, r.Commit.Tree, r.Conflicts, r.Commit
		return reply, nil
	}
	before := req.Note
	before.Kind, before.Message, before.Verified = "before", "Before "+describe(req), "unknown"
	before.Actor, before.User = "", "" // who asks for the publish did not make the changes that were there before
	live, err := e.checkpoint(ctx, wire.CheckpointRequest{Note: before})
	if err != nil {
		return reply, err
	}
	reply.Live = live
	store := e.store
	if req.Pushed != "" {
		if store, err = e.pushes.Open(req.Received); err != nil {
			return reply, err
		}
		defer func() { err = errors.Join(err, store.CloseQuarantine()) }()
	}
	m, err := e.merge(ctx, store, req)
	if err != nil {
		return reply, err
	}
	if reply.Conflicts = m.conflicts; req.Whole && len(m.conflicts) > 0 {
		return reply, nil
	}
	for _, s := range m.steps {
		reply.Changed = append(reply.Changed, s.Path)
	}
	if reply.Base, err = e.baseOf(ctx, req.Base); err != nil {
		return reply, err
	}
	reply.IsLive, reply.Nothing = req.Live, len(m.steps) == 0
	if err := e.moves.ClearPlan(req.ID); err != nil {
		return reply, err
	}
	err = e.store.Batch(func(flush func() error) error {
		p, err := e.writePrepared(ctx, store, req, m, &reply)
		if err != nil {
			return err
		}
		e.crash("publish.merged")
		if err := e.moves.SavePlan(p); err != nil {
			return err
		}
		return flush()
	})
	return reply, err
}

// merge is the result of merging a tree into the live one.
type merge struct {
	theirs    string            // their tree, of which only the allowed paths are merged
	ours      string            // HEAD's
	changes   []gitstore.Change // what turns our tree into the merged one
	conflicts []wire.Conflict
	steps     []publish.Step
}

// merge merges what differs between the base and their tree.
func (e *Engine) merge(ctx context.Context, store *gitstore.Store, req wire.PrepareRequest) (merge, error) {
	ids := map[string]string{}
	for name, rev := range map[string]string{"base": req.Base, "theirs": req.Tree} {
		if name == "base" && req.Task != "" {
			live, err := e.store.TreeOf(ctx, publish.LiveRef(req.Task))
			if err != nil {
				return merge{}, err
			}
			rev = cmp.Or(live, rev)
		}
		var err error
		if ids[name], err = e.treeishLocked(ctx, store, rev); err != nil {
			return merge{}, err
		}
	}
	m := merge{theirs: ids["theirs"], ours: e.moves.Tree}
	yours, err := store.Differences(ctx, ids["base"], m.theirs)
	if err != nil {
		return merge{}, err
	}
	if len(req.Paths) > 0 {
		list := wanted.Plain(req.Paths)
		yours = slices.DeleteFunc(yours, func(c gitstore.Change) bool { return !gitstore.Within(c.Path, list) })
		if m.theirs, err = store.Patch(ctx, ids["base"], yours); err != nil {
			return merge{}, err
		}
	}
	mine, err := store.DiffAround(ctx, ids["base"], m.ours, yours)
	if err != nil {
		return merge{}, err
	}
	w := wanted.New(store, e.scanner.Index)
	if m.conflicts, err = w.Merge(ctx, mine, yours); err != nil {
		return merge{}, err
	}
	m.changes = w.List()
	m.steps = publish.Steps(m.changes)
	if req.Pushed != "" {
		kept, kerr := w.KeptOut(ctx)
		stay, _, serr := e.moves.Obstacles(ctx, m.steps)
		// Whoever may push reads the next checkpoint too, which is to have no secret more.
		letIn, lerr := w.LetIn(ctx, e.scanner)
		if m.conflicts = slices.Concat(m.conflicts, kept, stay, letIn); errors.Join(kerr, serr, lerr) != nil {
			return merge{}, errors.Join(kerr, serr, lerr)
		}
	}
	return m, e.stepsAllThere(ctx, m.steps)
}

// baseOf is the commit that a publish is based on; the newest one if the request's base is
// a tree.
func (e *Engine) baseOf(ctx context.Context, base string) (string, error) {
	id, err := e.store.Resolve(ctx, base)
	if fault.Is(err, fault.NotFound) {
		return e.moves.Head, nil
	}
	return id, err
}

// writePrepared writes the trees and commits of a merge, and returns its plan.
func (e *Engine) writePrepared(ctx context.Context, store *gitstore.Store, req wire.PrepareRequest, m merge, reply *wire.PrepareReply) (publish.Plan, error) {
	var err error
	if reply.Tree, err = store.Patch(ctx, m.ours, m.changes); err != nil {
		return publish.Plan{}, err
	}
	reply.Identical = reply.Tree == m.theirs
	p := publish.Plan{
		ID: req.ID, Kind: cmp.Or(req.Kind, "publish"), From: e.moves.Head, Tree: reply.Tree, Base: reply.Base, Live: req.Live, Task: req.Task,
		Ops: m.steps, Conflicts: m.conflicts, Received: req.Received,
	}
	note := req.Note
	note.Kind, note.Publish, note.Files, note.NotIn = cmp.Or(note.Kind, "task"), req.ID, len(m.steps), e.scanner.NotInNow()
	if note.Verified, err = e.verified(ctx, note.Verified, req.Task); err != nil {
		return p, err
	}
	if reply.Nothing && note.Verified != "pass" && req.Pushed == "" {
		// If nothing changes, nothing is written either.
		reply.CommitNote, err = e.store.Commit(ctx, e.moves.Head)
	} else {
		reply.CommitNote, err = store.MakeCommit(ctx, reply.Tree, e.moves.Head, note, e.opts.Now().UnixMilli(), req.Parents()...)
	}
	if err != nil {
		return p, err
	}
	reply.Commit, p.Commit = reply.CommitNote.Commit, reply.CommitNote.Commit
	if req.Pushed != "" {
		return p, nil // whoever begins it points a ref at it
	}
	if err := e.store.ForceRef(ctx, publish.PublishRef(req.ID), reply.Commit); err != nil {
		return p, err
	}
	if !req.Live && len(m.conflicts) == 0 {
		return p, nil
	}
	// The task's own tree is kept for the next live publish, or to look at.
	c, err := e.moves.MakeCommit(ctx, m.theirs, p.Base, wire.Note{Kind: "kept", Message: "The task's own tree", Task: req.Note.Task, Run: req.Note.Run})
	if err != nil {
		return p, err
	}
	if req.Live {
		p.Mark = c.Commit
	}
	return p, e.store.ForceRef(ctx, publish.TaskRef(req.ID), c.Commit)
}

func describe(req wire.PrepareRequest) string {
	if req.Kind == "invert" {
		return "taking a task's live edits back"
	}
	if first, _, _ := strings.Cut(req.Note.Message, "\n"); first != "" {
		return first
	}
	return "publishing"
}

func (e *Engine) treeishLocked(ctx context.Context, store *gitstore.Store, name string) (string, error) {
	if name == "" {
		return "", fault.New("", fault.Invalid, "", errors.New("a commit or tree is required"))
	}
	if wire.IsHex(name) && len(name) == 40 {
		if tree, err := store.NameOf(ctx, name+"^{tree}"); err != nil || tree != "" {
			return tree, err
		}
	}
	return e.treeish(ctx, name, "HEAD")
}

// Begin decides that a prepared plan will be applied: from then on it is rolled forward
// after any crash. It fails if the history has moved on since.
func (e *Engine) Begin(ctx context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fault.Wrap("keeper.Begin", e.moves.Begin(ctx, id))
}

// Apply puts a plan that began into the live tree. It may be repeated.
func (e *Engine) Apply(ctx context.Context, id string) (wire.ApplyReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.apply(ctx, id)
	return reply, fault.Wrap("keeper.Apply", err)
}

func (e *Engine) apply(ctx context.Context, id string) (wire.ApplyReply, error) {
	if err := e.moves.SettleActs(); err != nil { // for what was put, removed or moved since it was prepared
		return wire.ApplyReply{}, err
	}
	if err := e.moves.Begin(ctx, id); err != nil {
		return wire.ApplyReply{}, err
	}
	// It is decided, so a caller that goes away must not leave half of it in the tree.
	ctx = context.WithoutCancel(ctx)
	a, placed, err := e.moves.FinishPlan(ctx, id)
	if err != nil {
		return wire.ApplyReply{}, err
	}
	e.onDisk = map[string]bool{}
	defer func() { e.onDisk = nil }()
	for _, p := range placed {
		e.onDisk[string(p)] = true
	}
	after, err := e.checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "auto", Message: "What was edited meanwhile", Seq: a.Commit.Seq, Run: a.Commit.Run}})
	if err != nil {
		return wire.ApplyReply{}, err
	}
	reply := wire.ApplyReply{Applied: a}
	if after.Created {
		reply.After = &after
	}
	return reply, nil
}

// Abandon drops a plan that did not begin.
func (e *Engine) Abandon(ctx context.Context, id string) error {
	const op = "keeper.Abandon"
	if err := publish.CheckPlanID(id); err != nil {
		return fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if started, err := disk.Exists(e.moves.PlanDir(id, "started")); err != nil {
		return fault.Wrap(op, err)
	} else if started {
		return fault.New(op, fault.Conflict, "Apply it, then restore what was before.", fmt.Errorf("publish %s has begun", id))
	}
	if err := e.store.DeleteRef(ctx, publish.PublishRef(id)); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, e.moves.ForgetPlan(id))
}

// Unlogged returns every finished plan that the host has not logged yet, after rolling
// forward what had begun.
func (e *Engine) Unlogged(ctx context.Context) ([]wire.Applied, error) {
	const op = "keeper.Unlogged"
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.RollForward(ctx); err != nil {
		return nil, fault.Wrap(op, err)
	}
	ids, err := e.moves.Plans()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	out := []wire.Applied{}
	for _, id := range ids {
		r, done, err := e.moves.LoadResult(id)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		if done && !r.Logged {
			out = append(out, r.Applied)
		}
	}
	return out, nil
}

// Logged says that the host has a finished plan in its log.
func (e *Engine) Logged(ctx context.Context, id string) error {
	const op = "keeper.Logged"
	if err := publish.CheckPlanID(id); err != nil {
		return fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r, done, err := e.moves.LoadResult(id)
	if err != nil || !done || r.Logged {
		return fault.Wrap(op, err)
	}
	r.Logged = true
	return fault.Wrap(op, e.moves.NoteResult(id, r))
}

// verified returns the verification status that a commit may claim: while a task's live
// edits are open, nothing counts as verified except that task's own publish.
func (e *Engine) verified(ctx context.Context, claim, task string) (string, error) {
	if claim != "pass" {
		return claim, nil
	}
	live, err := e.store.Refs(ctx, publish.LiveRefs)
	if err != nil {
		return "", err
	}
	for _, ref := range live {
		if ref != publish.LiveRef(task) {
			return "unknown", nil
		}
	}
	return claim, nil
}
