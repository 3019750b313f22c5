package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Overlay is a task's own view of the workspace: an immutable checkout in
// layers, and what the task writes above it.
type Overlay struct {
	ID    string // names it to the keeper; usually {task}-{attempt}
	Base  string // commit that it is compared, merged and checked against
	From  string // commit the lower layers are a checkout of: Base, or a kept tree that began from it
	Lower []sandbox.Volume
	Upper sandbox.Volume
	// BaseLower are the layers of Base.
	BaseLower []sandbox.Volume
	// Ignored directories (node_modules, caches) are overlaid from the live
	// tree, each on its own, and never published. Their paths were real
	// directories when they were listed; whoever mounts them must follow no link.
	Ignored []IgnoredDir
}

// IgnoredDir is one ignored directory of an overlay.
type IgnoredDir struct {
	Path  string // relative to the workspace's root
	Lower sandbox.Volume
	Upper sandbox.Volume
}

// maxIgnored bounds how many ignored directories are overlaid.
const maxIgnored = 64

// Begin makes the overlay of a task from a checkpoint (the newest when base is
// empty). Calling it again with the same id gives the same overlay as it stands.
func (w *Workspace) Begin(ctx context.Context, id, base string) (Overlay, error) {
	return w.BeginFrom(ctx, id, base, "")
}

// BeginFrom is Begin for a task that goes on from a kept tree, which itself began from
// base. What the kept tree holds counts as written by the task. An empty kept is base.
func (w *Workspace) BeginFrom(ctx context.Context, id, base, kept string) (_ Overlay, err error) {
	const op = "workspace.Begin"
	if id == "" || filepath.Base(id) != id || strings.HasPrefix(id, ".") {
		return Overlay{}, fault.New(op, fault.Invalid, "", fmt.Errorf("overlay id %q is not a plain name", id))
	}
	if base == "" {
		c, err := w.Checkpoint(ctx, CheckpointRequest{Kind: contract.CheckpointBefore, Message: "Before a task"})
		if err != nil {
			return Overlay{}, fault.Wrap(op, err)
		}
		base = c.Commit
	}
	// The mutex holds sweeping off until the new overlay counts.
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.held[id]; !again {
		defer func() {
			if err != nil {
				delete(w.held, id) // nobody was given them
			}
		}()
	}
	snap, lower, err := w.layers(ctx, base, id)
	if err != nil {
		return Overlay{}, fault.Wrap(op, err)
	}
	var st wire.IgnoredReply
	if err := w.opts.Keeper.Call(ctx, "ignored", wire.Empty{}, &st); err != nil {
		return Overlay{}, fault.Wrap(op, err)
	}
	o := Overlay{ID: id, Base: snap.Commit, From: snap.Commit, Lower: lower, BaseLower: lower, Upper: sandbox.Written(id)}
	if kept != "" && kept != base {
		if snap, lower, err = w.layers(ctx, kept, id); err != nil {
			return Overlay{}, fault.Wrap(op, err)
		}
		o.From, o.Lower = snap.Commit, lower
	}
	written := []sandbox.Volume{o.Upper}
	for i, p := range st.Ignored {
		if i == maxIgnored {
			break
		}
		if contract.ValidPath("ignored", string(p)) != nil {
			continue
		}
		ig := IgnoredDir{Path: string(p), Lower: sandbox.Live(string(p)), Upper: o.Upper.At(ignoredPart(string(p)))}
		o.Ignored, written = append(o.Ignored, ig), append(written, ig.Upper)
	}
	for _, v := range written {
		if err := w.opts.Volumes.Make(ctx, v); err != nil {
			return Overlay{}, fault.Wrap(op, err)
		}
	}
	return o, nil
}

// layers has a commit checked out for a user of it, who has its layers until he
// is forgotten, and returns them, the topmost first. It is called with mu held,
// so that nothing is swept before they count.
func (w *Workspace) layers(ctx context.Context, commit, user string) (wire.SnapshotReply, []sandbox.Volume, error) {
	var snap wire.SnapshotReply
	if err := w.opts.Keeper.Call(ctx, "snapshot", wire.CommitRequest{Commit: commit}, &snap); err != nil {
		return snap, nil, err
	}
	if len(snap.Layers) == 0 || len(snap.Layers) > wire.MaxLayers || slices.ContainsFunc(snap.Layers, func(l string) bool { return !isLayer(l) }) {
		return snap, nil, fault.New("", fault.Internal, "", fmt.Errorf("the keeper named the layers %.200q", snap.Layers))
	}
	var out []sandbox.Volume
	for _, l := range snap.Layers {
		out = append(out, sandbox.Snapshot(l))
		// One that has the commit already keeps what it was given before.
		if !slices.Contains(w.held[user], l) {
			w.held[user] = append(w.held[user], l)
		}
	}
	return snap, out, nil
}

func isLayer(name string) bool {
	return len(name) == 40 && strings.Trim(name, "0123456789abcdef") == ""
}

// toolDirs are where package managers put what they install.
var toolDirs = []string{"node_modules", ".venv", "venv", "vendor"}

// maxInstalledDirs bounds how many folders are looked at for what was installed there.
const maxInstalledDirs = 500

// Installed lists the ignored directories into which a task has put something,
// and what it installed beside the paths it changed where the user has nothing.
// None of it is published.
func (w *Workspace) Installed(ctx context.Context, o Overlay, changed []wire.Change) ([]string, error) {
	const op = "workspace.Installed"
	var ask []wire.Path
	var named []string // what each folder that is asked for is to the user
	want := func(in, name string) {
		if len(o.ID)+1+len(in) <= wire.MaxTreePath { // else nothing was made there: nobody can name it
			ask, named = append(ask, wire.Path(in)), append(named, name)
		}
	}
	seen, published := map[string]bool{}, map[string]bool{}
	for _, c := range changed {
		for dir := path.Dir(string(c.Path)); !published[dir] && dir != "."; dir = path.Dir(dir) {
			published[dir] = true
		}
	}
	for _, c := range changed {
		for dir := path.Dir(string(c.Path)); !seen[dir] && len(seen) < maxInstalledDirs; dir = path.Dir(dir) {
			seen[dir] = true
			for _, name := range toolDirs {
				at := path.Join(dir, name)
				if !published[at] {
					want(path.Join("upper", at), at)
				}
			}
		}
	}
	for _, ig := range o.Ignored {
		want(path.Join(ignoredPart(ig.Path), "upper"), ig.Path)
	}
	var out []string
	for len(ask) > 0 {
		n := atOnce(ask)
		var reply wire.FilledReply
		if err := w.opts.Keeper.Call(ctx, "filled", wire.FilledRequest{ID: o.ID, Folders: ask[:n]}, &reply); err != nil {
			return nil, fault.Wrap(op, err)
		}
		for _, i := range reply.Filled {
			if i < 0 || i >= n {
				return nil, fault.New(op, fault.Internal, "", fmt.Errorf("the keeper was not asked for folder %d", i))
			}
			out = append(out, named[i])
		}
		ask, named = ask[n:], named[n:]
	}
	return out, nil
}

// atOnce is how many of paths, which are one at least, the keeper is asked for in one
// request: what tasks name may be long, and JSON spells it up to six times as long.
func atOnce(paths []wire.Path) int {
	size := 0
	for i, p := range paths {
		if size += len(p); i > 0 && (size > wire.MaxRequest/8 || i == wire.MaxFilled) {
			return i
		}
	}
	return len(paths)
}

// ignoredPart names an ignored directory's own layer. It depends on nothing but
// its path: others come and go while a task works.
func ignoredPart(p string) string {
	sum := sha256.Sum256([]byte(p))
	return "ignored/" + hex.EncodeToString(sum[:16])
}

// Snapshot checks a commit out (such as a merged tree that must be verified) and
// returns its layers the topmost first. They stay until Release.
func (w *Workspace) Snapshot(ctx context.Context, commit string) ([]sandbox.Volume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, layers, err := w.layers(ctx, commit, "snapshot:"+commit)
	return layers, fault.Wrap("workspace.Snapshot", err)
}

// Release lets go of a commit's snapshot and removes every layer that nobody
// needs.
func (w *Workspace) Release(ctx context.Context, commit string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, "snapshot:"+commit)
	return fault.Wrap("workspace.Release", w.sweep(ctx))
}

// sweep removes the layers that nobody has. The keeper keeps the newest
// snapshot's by itself.
func (w *Workspace) sweep(ctx context.Context) error {
	keep := []string{}
	for _, layers := range w.held {
		keep = append(keep, layers...)
	}
	return w.opts.Keeper.Call(ctx, "release", wire.KeepRequest{Layers: keep}, nil)
}

// Tree has the keeper read what a task wrote, as a commit on what it started from. The
// changes of the reply are those since then.
func (w *Workspace) Tree(ctx context.Context, o Overlay, message, run, task string) (wire.TreeReply, error) {
	reply, err := w.tree(ctx, o, o.ID, message, run, task)
	return reply, fault.Wrap("workspace.Tree", err)
}

func (w *Workspace) tree(ctx context.Context, o Overlay, name, message, run, task string) (reply wire.TreeReply, err error) {
	err = w.opts.Keeper.Call(ctx, "tree", wire.TreeRequest{
		ID: name, Base: cmp.Or(o.From, o.Base), Upper: o.ID + "/upper", Note: wire.Note{Message: message, Run: run, Task: task, Seq: w.opts.Seq()},
	}, &reply)
	return reply, err
}

// ChooseRequest asks for what was chosen of a task's tree, of the overlay ID.
type ChooseRequest struct {
	ID, Base, Work string
	Only           []wire.Choice
	Message        string
	Run, Task      string
}

// Choose has the keeper make a commit on the base that has only what was chosen of a task's tree.
func (w *Workspace) Choose(ctx context.Context, req ChooseRequest) (reply wire.TreeReply, err error) {
	err = w.opts.Keeper.Call(ctx, "choose", wire.ChooseRequest{ID: req.ID, Base: req.Base, Tree: req.Work, Only: req.Only,
		Note: wire.Note{Message: req.Message, Run: req.Run, Task: req.Task, Seq: w.opts.Seq()}}, &reply)
	return reply, fault.Wrap("workspace.Choose", err)
}

// Hunks has the keeper list what a tree changes of another one.
func (w *Workspace) Hunks(ctx context.Context, base, tree string) (reply wire.HunksReply, err error) {
	err = w.opts.Keeper.Call(ctx, "hunks", wire.HunksRequest{Base: base, Tree: tree}, &reply)
	return reply, fault.Wrap("workspace.Hunks", err)
}

// PublishRequest asks to bring a task's tree into the live one. Tree is its
// commit, from Tree. VerifiedTree is the git tree that passed; when the merge
// gives another one, nothing is published and Published.Reverify names the
// commit to verify, unless it differs outside of Scope only. An empty VerifiedTree publishes whatever the merge gives,
// as unverified.
type PublishRequest struct {
	ID           string // idempotent: the same id publishes once
	Overlay      Overlay
	Tree         string
	VerifiedTree string
	// Scope lists the files and folders that the verification depends on; empty:
	// all. A merge that differs from VerifiedTree elsewhere only is published.
	Scope     []string
	Message   string
	Run, Task string
}

// Published is what a publish did.
type Published struct {
	ID         string
	Commit     string // checkpoint that holds the work
	MergedTree string // git tree of the merge
	Reverify   string // when set, nothing was published: verify this commit's tree, then publish again
	Changed    []wire.Path
	Conflicts  []wire.Conflict
	After      string // a further checkpoint, of what the user edited meanwhile
}

// Publish merges a task's tree into the live tree as it is now. What the user
// changed meanwhile is kept.
func (w *Workspace) Publish(ctx context.Context, req PublishRequest) (Published, error) {
	note := wire.Note{Kind: string(contract.CheckpointTask), Message: req.Message, Run: req.Run, Task: req.Task, Verified: string(contract.VerificationUnknown)}
	if req.VerifiedTree != "" {
		note.Verified = string(contract.VerificationPass)
	}
	p, err := w.publish(ctx, "prepare", wire.PrepareRequest{ID: req.ID, Base: req.Overlay.Base, Tree: req.Tree, Task: req.Overlay.ID, Note: note}, req.VerifiedTree, req.Scope...)
	return p, fault.Wrap("workspace.Publish", err)
}

// LivePaths are published once per tool call, so that the desktop changes while
// the user looks.
var LivePaths = []wire.Path{"choiros", contract.ThemePath}

// PublishLive publishes what a running task changed so far under LivePaths.
// id is one of its own for each call.
func (w *Workspace) PublishLive(ctx context.Context, id string, o Overlay, run, task string) (Published, error) {
	const op = "workspace.PublishLive"
	tree, err := w.Tree(ctx, o, "", run, task)
	if err != nil {
		return Published{}, fault.Wrap(op, err)
	}
	touched := false
	for _, c := range tree.Changes {
		for _, live := range LivePaths {
			touched = touched || c.Path == live || strings.HasPrefix(string(c.Path), string(live)+"/")
		}
	}
	if !touched && tree.More == 0 && !w.isLive(o.ID) {
		return Published{ID: id}, nil
	}
	w.mu.Lock()
	w.live[o.ID] = true
	w.mu.Unlock()
	p, err := w.publish(ctx, "prepare", wire.PrepareRequest{
		ID: id, Base: o.Base, Tree: tree.Commit, Paths: LivePaths, Live: true, Task: o.ID,
		Note: wire.Note{Kind: string(contract.CheckpointAuto), Message: "A task's edit to the desktop, while it works", Run: run, Task: task},
	}, "")
	return p, fault.Wrap(op, err)
}

func (w *Workspace) isLive(overlay string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live[overlay]
}

// Invert takes a task's live edits back, such as when it failed.
func (w *Workspace) Invert(ctx context.Context, id string, o Overlay, run, task string) (Published, error) {
	p, err := w.publish(ctx, "invert", wire.InvertRequest{ID: id, Task: o.ID, Base: o.Base, Note: wire.Note{Message: "Take a task's edits to the desktop back", Run: run, Task: task, Seq: w.opts.Seq()}}, "")
	return p, fault.Wrap("workspace.Invert", err)
}

func (w *Workspace) publish(ctx context.Context, verb string, in any, verified string, scope ...string) (_ Published, err error) {
	release, err := w.take(ctx)
	if err != nil {
		return Published{}, err
	}
	defer release(&err)
	if p, ok := in.(wire.PrepareRequest); ok {
		p.Note.Seq = w.opts.Seq()
		in = p
	}
	var prep wire.PrepareReply
	if err := w.opts.Keeper.Call(ctx, verb, in, &prep); err != nil {
		return Published{}, err
	}
	crash.At("workspace.publish.prepared")
	out := Published{ID: prep.ID, MergedTree: prep.Tree, Changed: prep.Changed, Conflicts: prep.Conflicts}
	if prep.Live.Created {
		if _, err := w.logCheckpoint(ctx, prep.Live); err != nil {
			return out, err
		}
	}
	if prep.Commit == "" {
		return out, nil // an inversion of nothing, or what was to be whole conflicts
	}
	if !prep.Done {
		if verified != "" && prep.Tree != verified {
			same, err := w.sameWithin(ctx, verified, prep.Tree, scope)
			if err != nil {
				return out, err
			}
			if !same {
				out.Reverify = prep.Commit
				return out, nil
			}
		}
		// Whoever asked may have gone, or may not do so any more. Behind this it is decided,
		// and to be cut off within the call would leave open whether.
		if err := ctx.Err(); err != nil {
			return out, err
		}
		ctx = context.WithoutCancel(ctx)
		if err := w.opts.Keeper.Call(ctx, "begin", wire.IDRequest{ID: prep.ID}, nil); err != nil {
			return out, err
		}
		crash.At("workspace.publish.begun")
		if _, err := w.opts.Log.Append(ctx, w.startedDraft(wire.Applied{
			Publish: prep.ID, Commit: prep.CommitNote, Base: prep.Base, Live: prep.IsLive, Paths: len(prep.Changed),
		})); err != nil {
			return out, err
		}
	}
	crash.At("workspace.publish.logged")
	var applied wire.ApplyReply
	if err := w.opts.Keeper.Call(ctx, "apply", wire.IDRequest{ID: prep.ID}, &applied); err != nil {
		return out, err
	}
	crash.At("workspace.publish.applied")
	out.Commit, out.Conflicts = applied.Commit.Commit, applied.Conflicts
	if err := w.logApplied(ctx, applied.Applied); err != nil {
		return out, err
	}
	if applied.After != nil {
		c, err := w.logCheckpoint(ctx, *applied.After)
		if err != nil {
			return out, err
		}
		out.After = c.Commit
	}
	if applied.Kind == "publish" && !applied.Live {
		w.tasks++
	}
	if w.opts.AutoTasks > 0 && w.tasks >= w.opts.AutoTasks {
		_, err = w.checkpoint(ctx, CheckpointRequest{Kind: contract.CheckpointAuto, Message: "Automatic checkpoint"})
	}
	return out, err
}

// sameWithin reports whether two trees have the same under every path of scope.
// Nothing is, where the scope is not known.
func (w *Workspace) sameWithin(ctx context.Context, a, b string, scope []string) (bool, error) {
	if len(scope) == 0 || len(scope) > 1000 || slices.Contains(scope, ".") {
		return false, nil
	}
	paths := make([]wire.Path, 0, len(scope))
	for _, p := range scope {
		paths = append(paths, wire.Path(p))
	}
	if atOnce(paths) < len(paths) {
		return false, nil // it is verified again instead
	}
	var diff wire.DiffReply
	err := w.opts.Keeper.Call(ctx, "diff", wire.DiffRequest{From: a, To: b, Paths: paths, MaxBytes: 1, Metadata: true}, &diff)
	return err == nil && len(diff.Changes) == 0 && len(diff.Repositories) == 0 && diff.More == 0, err
}

// Drop lets go of a task's overlay: its files, its snapshot, its live
// publishing. What it published stays.
func (w *Workspace) Drop(ctx context.Context, o Overlay) error {
	const op = "workspace.Drop"
	if o.ID == "" || filepath.Base(o.ID) != o.ID || strings.HasPrefix(o.ID, ".") {
		return fault.New(op, fault.Invalid, "", fmt.Errorf("overlay id %q is not a plain name", o.ID))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, o.ID)
	delete(w.live, o.ID)
	err := w.opts.Keeper.Call(ctx, "drop", wire.IDRequest{ID: o.ID}, nil)
	crash.At("workspace.overlay.dropped")
	return fault.Wrap(op, errors.Join(err, w.removeOverlay(ctx, o.ID), w.sweep(ctx)))
}

// DropAll lets go of the overlays that are there and whose ids are chosen.
func (w *Workspace) DropAll(ctx context.Context, chosen func(id string) bool) error {
	const op = "workspace.DropAll"
	list, err := w.opts.Volumes.List(ctx, sandbox.Written(""))
	if err != nil {
		return fault.Wrap(op, err)
	}
	var errs []error
	for _, e := range list {
		if chosen(e.Name) {
			errs = append(errs, w.Drop(ctx, Overlay{ID: e.Name}))
		}
	}
	return fault.Wrap(op, errors.Join(errs...))
}

// removeOverlay takes an overlay's files away at once, whatever is in them, so
// that one with its own name is always whole.
func (w *Workspace) removeOverlay(ctx context.Context, id string) error {
	err := w.opts.Volumes.Discard(ctx, sandbox.Written(id))
	crash.At("workspace.overlay.renamed")
	return err
}

func shown(conflicts []wire.Conflict) []string {
	var out []string
	for i, c := range conflicts {
		if i == 199 && len(conflicts) > 200 {
			return append(out, fmt.Sprintf("and %d more", len(conflicts)-i))
		}
		out = append(out, strings.ReplaceAll(c.Path.Shown(), "\x00", ""))
	}
	return out
}

func (w *Workspace) startedDraft(a wire.Applied) contract.Draft {
	c := w.fromCommit(a.Commit)
	base := a.Base
	if base == "" {
		base = c.Commit
	}
	return contract.Draft{
		ID: contract.DeriveID(string(w.opts.CID)+"\x00"+a.Publish+"\x00"+c.Commit, "publish.started"), Actor: contract.System(), Type: "publish.started",
		Subject: "publish/" + a.Publish, Time: c.Time, Run: c.Run, Task: c.Task,
		Data: contract.PublishStarted{Publish: a.Publish, Commit: c.Commit, Base: base, Live: a.Live, Paths: a.Paths},
	}
}

// RestoredID is the id of the event of the restore that made a checkpoint.
func RestoredID(cid contract.CID, commit string) string {
	return contract.DeriveID(string(cid)+"\x00"+commit, "checkpoint.restored")
}

// logApplied appends the events of a finished publish or restore, and of the
// checkpoint it made, then tells the keeper. Every id is derived, so a repeat
// after a crash is recognised.
func (w *Workspace) logApplied(ctx context.Context, a wire.Applied) error {
	ctx = context.WithoutCancel(ctx)
	c := w.fromCommit(a.Commit)
	var drafts []contract.Draft
	switch {
	case a.Kind == "restore" && a.Commit.Restore != nil:
		r := a.Commit.Restore
		var paths []string
		for _, p := range r.Paths {
			paths = append(paths, p.Shown())
		}
		cause := r.Cause
		if contract.ValidID("causation", cause) != nil {
			cause = ""
		}
		if len(paths) > 200 {
			paths = paths[:200]
		}
		drafts = append(drafts, w.checkpointDraft(a.Commit), contract.Draft{
			ID: RestoredID(w.opts.CID, c.Commit), Actor: handOf("checkpoint.restored", cmp.Or(a.Commit.Actor, r.Actor), cmp.Or(a.Commit.User, r.User)), Type: "checkpoint.restored",
			Subject: "checkpoint/" + r.To, Time: c.Time, Causation: cause,
			Data: contract.CheckpointRestored{To: r.To, Safety: r.Safety, Checkpoint: c.Commit, Paths: paths, Undo: r.Undo},
		})
	default:
		drafts = append(drafts, w.startedDraft(a))
		if a.Commit.Publish == a.Publish { // it made a commit of its own
			drafts = append(drafts, w.checkpointDraft(a.Commit))
		}
		drafts = append(drafts, contract.Draft{
			ID: contract.DeriveID(string(w.opts.CID)+"\x00"+a.Publish+"\x00"+c.Commit, "publish.finished"), Actor: contract.System(), Type: "publish.finished",
			Subject: "publish/" + a.Publish, Time: c.Time, Run: c.Run, Task: c.Task,
			Data: contract.PublishFinished{Publish: a.Publish, Commit: c.Commit, Conflicts: shown(a.Conflicts), Inverted: a.Kind == "invert"},
		})
	}
	if _, err := w.opts.Log.AppendEach(ctx, drafts...); err != nil {
		return err
	}
	crash.At("workspace.publish.recorded")
	return w.opts.Keeper.Call(ctx, "logged", wire.IDRequest{ID: a.Publish}, nil)
}
