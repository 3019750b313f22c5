package workspace

import (
	"context"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// CheckpointRequest says why a checkpoint is made.
type CheckpointRequest struct {
	Kind     contract.CheckpointKind
	Message  string
	Run      string
	Task     string
	Verified contract.VerificationStatus // unknown when empty
	Force    bool                        // also if nothing changed
	Under    string                      // limits the reported ignored paths to a folder
	By       contract.Actor              // who asked for it; the zero value is the host by itself
	whole    bool                        // the history begins with it, and it must contain all files
}

// Checkpoint is one point of the history.
type Checkpoint struct {
	contract.CheckpointCreated
	Time    time.Time
	Run     string
	Task    string
	Created bool         // made by this call; false if nothing had changed
	LeftOut wire.LeftOut // what it leaves out now
}

// Checkpoint commits the live tree. When nothing changed it returns the newest
// checkpoint. When it returns, the commit and its event are durable.
func (w *Workspace) Checkpoint(ctx context.Context, req CheckpointRequest) (_ Checkpoint, err error) {
	const op = "workspace.Checkpoint"
	release, err := w.take(ctx)
	if err != nil {
		return Checkpoint{}, fault.Wrap(op, err)
	}
	defer release(&err)
	c, err := w.checkpoint(ctx, req)
	return c, fault.Wrap(op, err)
}

func (w *Workspace) checkpoint(ctx context.Context, req CheckpointRequest) (Checkpoint, error) {
	var reply wire.CheckpointReply
	// A person who asks for one expects it to have what programs on the host did; automatic
	// ones scan everything too, which in the end finds what no watcher could report.
	in := wire.CheckpointRequest{Force: req.Force, FullScan: req.Kind == contract.CheckpointAuto, HostWatched: req.Kind == contract.CheckpointManual, Whole: req.whole, Under: wire.Path(req.Under), Note: by(req.By, wire.Note{
		Kind: string(req.Kind), Message: req.Message, Seq: w.opts.Seq(), Run: req.Run, Task: req.Task, Verified: string(req.Verified),
	})}
	if err := w.opts.Keeper.Call(ctx, "checkpoint", in, &reply); err != nil {
		return Checkpoint{}, err
	}
	if len(reply.Unseen) > 0 {
		w.opts.Logger.ErrorContext(ctx, "files changed in a way that the watch of the tree did not see; it is off until the computer wakes anew, and all of it is scanned each time",
			"computer", w.opts.CID, "first", reply.Unseen)
	}
	w.mu.Lock()
	if w.unwatched = reply.Unwatched; w.unwatched != "" {
		w.unwatched = contract.Line(contract.Clip(w.unwatched, 300)) // a box's word
	}
	w.mu.Unlock()
	w.tasks = 0
	return w.logCheckpoint(ctx, reply)
}

// Unwatched says, for people, why all of the tree is scanned after each command; "" when it
// is watched, or that is not known yet.
func (w *Workspace) Unwatched() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unwatched
}

// markEvery is the number of logged checkpoints after which the keeper is told; until then
// a restart appends their events again, which the log recognises.
const markEvery = 20

// maxLogged is how many checkpoints' events are appended at once.
const maxLogged = 100

func (w *Workspace) appendCheckpoints(ctx context.Context, commits []wire.Commit) error {
	drafts := make([]contract.Draft, len(commits))
	for i, c := range commits {
		drafts[i] = w.checkpointDraft(c)
	}
	_, err := w.opts.Log.AppendEach(ctx, drafts...)
	return err
}

// logCheckpoint appends the event of a checkpoint that was made. The commit is
// on disk, so its event is appended even if the caller has gone away.
func (w *Workspace) logCheckpoint(ctx context.Context, reply wire.CheckpointReply) (Checkpoint, error) {
	ctx = context.WithoutCancel(ctx)
	c := w.fromCommit(reply.Commit)
	c.Created, c.LeftOut = reply.Created, reply.LeftOut
	made := slices.Clone(reply.Puts)
	if reply.Created {
		made = append(made, reply.Commit)
	}
	if len(made) == 0 {
		return c, nil
	}
	crash.At("workspace.checkpoint.made")
	for some := range slices.Chunk(made, maxLogged) {
		if err := w.appendCheckpoints(ctx, some); err != nil {
			return c, err
		}
	}
	if w.unlogged += len(made); w.unlogged >= markEvery {
		if err := w.opts.Keeper.Call(ctx, "mark", wire.CommitRequest{Commit: reply.Commit.Commit}, nil); err != nil {
			return c, err
		}
		w.unlogged = 0
	}
	return c, nil
}

var kinds = []contract.CheckpointKind{
	contract.CheckpointInitial, contract.CheckpointAuto, contract.CheckpointManual, contract.CheckpointBefore, contract.CheckpointTask, contract.CheckpointPush,
	contract.CheckpointAfter, contract.CheckpointSafety, contract.CheckpointRestore,
}

// fromCommit converts the keeper's description of a commit, within the contract's bounds.
func (w *Workspace) fromCommit(c wire.Commit) Checkpoint {
	out := Checkpoint{
		CheckpointCreated: contract.CheckpointCreated{
			Commit: c.Commit, Parent: c.Parent, Tree: c.Tree, Kind: contract.CheckpointKind(c.Kind), Message: c.Message, Seq: c.Seq,
			Verified: contract.VerificationStatus(c.Verified), Files: max(0, c.Files),
			Skipped: c.Skipped, Left: max(0, c.SkippedFiles), Ignored: c.IgnoredPaths, Outside: max(0, c.IgnoredCount),
		},
		Time: time.Unix(c.Time, 0).UTC(), Run: c.Run, Task: c.Task,
	}
	if c.At/1000 == c.Time { // otherwise somebody else wrote the commit's note
		out.Time = time.UnixMilli(c.At).UTC()
	}
	if !slices.Contains(kinds, out.Kind) {
		out.Kind = contract.CheckpointAuto
	}
	if len(out.Skipped) > 200 {
		out.Skipped = out.Skipped[:200]
	}
	if len(out.Ignored) > 40 {
		out.Ignored = out.Ignored[:40]
	}
	if contract.ValidID("run", out.Run) != nil {
		out.Run = ""
	}
	if contract.ValidID("task", out.Task) != nil {
		out.Task = ""
	}
	return out
}

// by adds to a note who asked for the checkpoint, if that was a person or somebody acting
// for one.
func by(a contract.Actor, n wire.Note) wire.Note {
	if a.Kind.Client() {
		n.Actor, n.User = string(a.Name()), a.Account()
	}
	return n
}

// makerOf is who made a checkpoint, by its note: the host if it names nobody, for then
// nobody asked, or it is of an earlier version, or the name in it is not valid.
func makerOf(n wire.Note) contract.Actor {
	info, _ := contract.Lookup("checkpoint.created")
	if a, err := contract.ActorName(n.Actor).Actor(n.User); err == nil && info.SaidBy(a.Kind) {
		return a
	}
	return contract.System()
}

// checkpointDraft is the event of a commit. It depends only on the commit, so that
// appending it again after a crash is recognised.
func (w *Workspace) checkpointDraft(commit wire.Commit) contract.Draft {
	c := w.fromCommit(commit)
	return contract.Draft{
		ID: contract.DeriveID(string(w.opts.CID)+"\x00"+c.Commit, "checkpoint.created"), Actor: makerOf(commit.Note), Type: "checkpoint.created",
		Subject: "checkpoint/" + c.Commit, Time: c.Time, Data: c.CheckpointCreated, Run: c.Run, Task: c.Task,
	}
}

// Checkpoints lists at most limit checkpoints, newest first, older than before
// when that is set.
func (w *Workspace) Checkpoints(ctx context.Context, before string, limit int) ([]Checkpoint, error) {
	var commits []wire.Commit
	if err := w.opts.Keeper.Call(ctx, "list", wire.ListRequest{Before: before, Limit: limit}, &commits); err != nil {
		return nil, fault.Wrap("workspace.Checkpoints", err)
	}
	out := make([]Checkpoint, len(commits))
	for i, c := range commits {
		out[i] = w.fromCommit(c)
	}
	return out, nil
}

// Diff returns what differs between two checkpoints, or one and the live tree.
func (w *Workspace) Diff(ctx context.Context, req wire.DiffRequest) (wire.DiffReply, error) {
	var reply wire.DiffReply
	err := w.opts.Keeper.Call(ctx, "diff", req, &reply)
	return reply, fault.Wrap("workspace.Diff", err)
}

// Status compares the live tree with the newest checkpoint.
func (w *Workspace) Status(ctx context.Context) (wire.StatusReply, error) {
	var reply wire.StatusReply
	err := w.opts.Keeper.Call(ctx, "status", wire.Empty{}, &reply)
	return reply, fault.Wrap("workspace.Status", err)
}

// Maintain packs the history, lets the oldest kept trees go, and removes the chunks of large
// files that nothing needs; it is called when the computer is idle.
func (w *Workspace) Maintain(ctx context.Context) error {
	const op = "workspace.Maintain"
	if err := w.opts.Keeper.Call(ctx, "maintain", wire.Empty{}, nil); err != nil {
		return fault.Wrap(op, err)
	}
	if _, err := w.kept(ctx, w.outlived("")); err != nil {
		return fault.Wrap(op, err)
	}
	var c wire.CollectReply
	err := w.opts.Keeper.Call(ctx, "collect", wire.Empty{}, &c)
	if c.Removed > 0 {
		w.opts.Logger.InfoContext(ctx, "chunks of large files were collected", "chunks", c.Removed, "bytes", c.Bytes)
	}
	return fault.Wrap(op, err)
}

// RestoreRequest says where to go back to. ID makes the request idempotent; it
// is drawn when empty.
type RestoreRequest struct {
	ID        string
	To        string // a commit, or at least 7 digits of it
	Paths     []string
	Revert    []wire.Reverted // instead of To: only the changes of these commits are undone, newest first
	Except    []string        // paths at which Revert undoes nothing, nor beneath them
	Message   string          // of the new checkpoint; empty: one that says what it goes back to
	DryRun    bool
	By        contract.Actor
	Causation string
	// Keep are files that, if they exist, stay as they are when no paths are named: their
	// content is decided elsewhere.
	Keep []string
}

// Restored is what a restore did, or with DryRun would do.
type Restored struct {
	To             string
	Safety         string          // checkpoint of everything as it was before
	Checkpoint     string          // the new one
	wire.DiffReply                 // what changes
	Conflicts      []wire.Conflict // paths that stay as they are, because no checkpoint has their content or it is newer
	LeftOut        wire.LeftOut    // what no checkpoint has, and stays as it is
}

// Restore brings the workspace, or paths of it, back to a checkpoint, as a new
// checkpoint after one of everything as it was.
func (w *Workspace) Restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	r, err := w.restore(ctx, req, false)
	return r, fault.Wrap("workspace.Restore", err)
}

// Undo goes back to where the newest restore came from; it can be undone too.
func (w *Workspace) Undo(ctx context.Context, req RestoreRequest) (Restored, error) {
	r, err := w.restore(ctx, req, true)
	return r, fault.Wrap("workspace.Undo", err)
}

func (w *Workspace) restore(ctx context.Context, req RestoreRequest, undo bool) (_ Restored, err error) {
	release, err := w.take(ctx)
	if err != nil {
		return Restored{}, err
	}
	defer release(&err)
	if req.ID == "" {
		req.ID = contract.NewID()
	}
	in := wire.RestoreRequest{ID: req.ID, To: req.To, DryRun: req.DryRun, Undo: undo, Revert: req.Revert, Cause: req.Causation, Note: by(req.By, wire.Note{Seq: w.opts.Seq(), Message: req.Message})}
	for _, p := range req.Paths {
		in.Paths = append(in.Paths, wire.Path(p))
	}
	for _, p := range req.Keep {
		in.Keep = append(in.Keep, wire.Path(p))
	}
	for _, p := range req.Except {
		in.Except = append(in.Except, wire.Path(p))
	}
	var reply wire.RestoreReply
	if err := w.opts.Keeper.Call(ctx, "restore", in, &reply); err != nil {
		return Restored{}, err
	}
	crash.At("workspace.restore.applied")
	out := Restored{To: reply.To, DiffReply: reply.DiffReply, Conflicts: reply.Conflicts, LeftOut: reply.LeftOut}
	if req.DryRun || reply.Applied == nil || reply.Safety == nil {
		return out, nil
	}
	out.Safety, out.Checkpoint, out.Conflicts = reply.Safety.Commit.Commit, reply.Applied.Commit.Commit, reply.Conflicts
	if _, err := w.logCheckpoint(ctx, *reply.Safety); err != nil {
		return out, err
	}
	if err := w.logApplied(ctx, reply.Applied.Applied); err != nil {
		return out, err
	}
	if reply.Applied.After != nil {
		_, err = w.logCheckpoint(ctx, *reply.Applied.After)
	}
	return out, err
}

// ObjectID returns the git id of the object that a checkpoint (the newest when commit is
// empty) has at a path: the same content gives the same id.
func (w *Workspace) ObjectID(ctx context.Context, commit, p string) (string, error) {
	var reply wire.IDRequest
	err := w.opts.Keeper.Call(ctx, "object", wire.ObjectRequest{Commit: commit, Path: wire.Path(p)}, &reply)
	return reply.ID, fault.Wrap("workspace.ObjectID", err)
}

// Contains says which of paths are files in each of commits. It returns nil when that does
// not say enough, for example because one of names is in their folders or above, or when
// there are too many paths.
func (w *Workspace) Contains(ctx context.Context, commits, paths, names []string) ([][]bool, error) {
	if len(paths) > wire.MaxContains {
		return nil, nil
	}
	req := wire.ContainsRequest{Commits: commits, Names: names}
	for _, p := range paths {
		req.Paths = append(req.Paths, wire.Path(p))
	}
	var reply wire.ContainsReply
	if err := w.opts.Keeper.Call(ctx, "contains", req, &reply); err != nil || !reply.Plain {
		return nil, fault.Wrap("workspace.Contains", err)
	}
	return reply.There, nil
}
