package runspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Workspace is the workspace as runs see it.
type Workspace struct {
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Mirror    *mirror.Mirror
	Volumes   sandbox.Volumes
	Shell     Shell // the desktop, which shows what is published
}

// Shell is what the workspace needs of the desktop.
type Shell interface {
	Changed()
	ThemeChanged()
	// RestoredSince reports whether the shell was restored after a sequence.
	RestoredSince(ctx context.Context, after uint64) (bool, error)
}

// Overlay is an attempt's copy of the workspace.
type Overlay struct {
	workspace.Overlay
	Ref ports.TaskRef
}

// Base implements ports.Overlay.
func (o *Overlay) Base() string { return o.Overlay.Base }

// publish returns the id of one of the attempt's publishes. It is the same after a crash,
// so that what was already published is recognised.
func (o *Overlay) publish(what string) string { return contract.DeriveID(o.ID, what) }

// TreeOf returns the workspace's overlay behind one that this computer handed out.
func TreeOf(o ports.Overlay) (workspace.Overlay, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return workspace.Overlay{}, err
	}
	return mine.Overlay, nil
}

func overlayOf(o ports.Overlay) (*Overlay, error) {
	mine, ok := o.(*Overlay)
	if !ok {
		return nil, fault.New("runspace.Workspace", fault.Internal, "", fmt.Errorf("%T is no overlay of this computer", o))
	}
	return mine, nil
}

// Checkpoint implements ports.Workspace.
func (w *Workspace) Checkpoint(ctx context.Context, t ports.TaskRef, message string) (string, error) {
	w.Mirror.Settle(ctx, document.By(document.Nobody), false)
	k, err := w.Workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointBefore, Message: message, Run: t.Run, Task: t.Task})
	return k.Commit, err
}

// Start implements ports.Workspace.
func (w *Workspace) Start(ctx context.Context, commit string) (ports.Start, error) {
	const op = "runspace.Start"
	if err := w.State.CaughtUp(ctx, w.Log); err != nil {
		return ports.Start{}, fault.Wrap(op, err)
	}
	if k, err := w.State.Checkpoint(ctx, commit); err == nil && k.Commit == commit {
		return ports.Start{Base: commit}, nil
	} else if err != nil && !fault.Is(err, fault.NotFound) {
		return ports.Start{}, fault.Wrap(op, err)
	}
	kept, err := w.State.KeptTree(ctx, commit)
	if fault.Is(err, fault.NotFound) {
		return ports.Start{}, fault.New(op, fault.NotFound, "", errors.New("no checkpoint and no kept tree of this computer has this id"))
	}
	if err != nil {
		return ports.Start{}, fault.Wrap(op, err)
	}
	there, err := w.Workspace.KeptTrees(ctx)
	if err != nil {
		return ports.Start{}, fault.Wrap(op, err)
	}
	if !slices.ContainsFunc(there, func(k workspace.KeptTree) bool { return k.Commit == commit }) {
		return ports.Start{}, fault.New(op, fault.NotFound, "", errors.New("this tree was kept and is gone: only the newest are kept, and not for ever"))
	}
	return ports.Start{Base: kept.Base, Kept: commit}, nil
}

// Begin implements ports.Workspace.
func (w *Workspace) Begin(ctx context.Context, t ports.TaskRef, from ports.Start) (ports.Overlay, error) {
	o, err := w.Workspace.BeginFrom(ctx, overlayID(t), from.Base, from.Kept)
	if err != nil {
		return nil, err
	}
	return &Overlay{o, t}, nil
}

// Reopen implements ports.Workspace. An attempt whose tree is gone must not continue in an
// empty one.
func (w *Workspace) Reopen(ctx context.Context, t ports.TaskRef, from ports.Start) (ports.Overlay, error) {
	there, err := w.Volumes.Exists(ctx, sandbox.Written(overlayID(t)))
	if err != nil {
		return nil, fault.Wrap("runspace.Reopen", err)
	}
	if !there {
		return nil, fault.New("runspace.Reopen", fault.NotFound, "", errors.New("the tree of the interrupted attempt is gone"))
	}
	return w.Begin(ctx, t, from)
}

func overlayID(t ports.TaskRef) string { return fmt.Sprintf("%s-%d", t.Task, t.Attempt) }

// isOverlayID says whether a name is one that overlayID returns: other boxes have folders
// beside them.
func isOverlayID(id string) bool {
	i := strings.LastIndexByte(id, '-')
	if i < 0 || contract.ValidID("task", id[:i]) != nil {
		return false
	}
	n, err := strconv.Atoi(id[i+1:])
	return err == nil && n > 0
}

// PublishLive implements ports.Workspace. If somebody has reverted what the task had
// published so far, the rest is not published before the task's end.
func (w *Workspace) PublishLive(ctx context.Context, o ports.Overlay) (int, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return 0, err
	}
	if back, err := w.tookBack(ctx, mine.Ref.Task); err != nil || back {
		return 0, err
	}
	p, err := w.Workspace.PublishLive(ctx, contract.NewID(), mine.Overlay, mine.Ref.Run, mine.Ref.Task)
	if err == nil && len(p.Changed) > 0 {
		w.Shell.ThemeChanged()
	}
	return len(p.Changed), err
}

// tookBack reports whether the shell was restored since the task first published an edit to
// it.
func (w *Workspace) tookBack(ctx context.Context, task string) (bool, error) {
	if err := w.State.CaughtUp(ctx, w.Log); err != nil {
		return false, err
	}
	publishes, err := w.State.Publishes(ctx, task, false)
	if err != nil {
		return false, err
	}
	first := slices.IndexFunc(publishes, func(p state.Publish) bool { return p.Live })
	if first < 0 {
		return false, nil
	}
	return w.Shell.RestoredSince(ctx, publishes[first].StartedSeq)
}

// Settle implements ports.Workspace.
func (w *Workspace) Settle(ctx context.Context, o ports.Overlay) (live bool, err error) {
	mine, err := overlayOf(o)
	if err != nil {
		return false, err
	}
	return w.Workspace.SettleOverlay(ctx, mine.Overlay)
}

// Merge implements ports.Workspace. The request says that the tree "none" was verified,
// which no merge results in, so the merge is prepared and never applied.
func (w *Workspace) Merge(ctx context.Context, o ports.Overlay, took ports.Took) (ports.Merged, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return ports.Merged{}, err
	}
	tree, err := w.work(ctx, mine, took)
	if err != nil {
		return ports.Merged{}, err
	}
	p, err := w.Workspace.Publish(ctx, workspace.PublishRequest{
		ID: mine.publish("merge"), Overlay: mine.Overlay, Tree: tree.Commit, VerifiedTree: "none", Run: mine.Ref.Run, Task: mine.Ref.Task,
	})
	if err != nil {
		return ports.Merged{}, err
	}
	out := ports.Merged{Commit: p.Reverify, Tree: p.MergedTree, Work: tree.Commit, Conflicts: shown.Kept(p.Conflicts)}
	diff, err := w.Workspace.Diff(ctx, wire.DiffRequest{From: mine.Base(), To: tree.Commit})
	if err != nil {
		return ports.Merged{}, err
	}
	if out.Installed, err = w.Workspace.Installed(ctx, mine.Overlay, diff.Changes); err != nil {
		return ports.Merged{}, err
	}
	slices.SortStableFunc(tree.Left, func(a, b wire.Skip) int { return b.Files - a.Files }) // those that stand for most files come first
	for _, s := range tree.Left {
		if !s.Kept {
			out.Left = append(out.Left, view.Kept{Path: s.Path.Shown(), Reason: s.Reason})
		}
	}
	out.Changes, out.Diff, out.DiffCut = shown.Changes(shown.WithRepositories(diff)), diff.Diff, diff.Truncated
	return out, nil
}

// work is the tree of a task that is merged: what its box left, or what a person took of it. Nobody has
// written to it since they were shown it, for its box had ended.
func (w *Workspace) work(ctx context.Context, o *Overlay, took ports.Took) (wire.TreeReply, error) {
	switch {
	case took.Work == "":
		return w.Workspace.Tree(ctx, o.Overlay, "A task's work", o.Ref.Run, o.Ref.Task)
	case len(took.Only) == 0:
		return wire.TreeReply{Commit: took.Work}, nil
	}
	return w.Workspace.Choose(ctx, workspace.ChooseRequest{ID: o.ID, Base: o.Base(), Work: took.Work, Only: chosen(took.Only), Message: "What was chosen of a task's work", Run: o.Ref.Run, Task: o.Ref.Task})
}

func chosen(only []contract.Choice) []wire.Choice {
	out := make([]wire.Choice, 0, len(only))
	for _, c := range only {
		out = append(out, wire.Choice{Path: wire.Path(c.Path), Hunks: c.Hunks})
	}
	return out
}

// Choose implements ports.Workspace.
func (w *Workspace) Choose(ctx context.Context, t ports.TaskRef, base, work string, only []contract.Choice) error {
	_, err := w.Workspace.Choose(ctx, workspace.ChooseRequest{ID: overlayID(t), Base: base, Work: work, Only: chosen(only), Message: "What was chosen of a task's work", Run: t.Run, Task: t.Task})
	return err
}

// Hunks implements ports.Workspace.
func (w *Workspace) Hunks(ctx context.Context, base, work string) ([]view.ReviewFile, int, error) {
	got, err := w.Workspace.Hunks(ctx, base, work)
	if err != nil {
		return nil, 0, err
	}
	files := make([]view.ReviewFile, 0, len(got.Files))
	for _, f := range got.Files {
		if !utf8.ValidString(string(f.Path)) {
			got.More++ // nobody can name it in an answer; it is taken with all
			continue
		}
		out := view.ReviewFile{Path: string(f.Path), Op: contract.ChangeOp(f.Op), Plain: f.Plain}
		for _, h := range f.Hunks {
			out.Hunks = append(out.Hunks, view.Hunk{ID: h.ID, Old: h.Old, OldLines: h.OldLines, New: h.New, NewLines: h.NewLines, Text: h.Text})
		}
		files = append(files, out)
	}
	return files, got.More, nil
}

// Contains implements ports.Workspace.
func (w *Workspace) Contains(ctx context.Context, commits, paths, names []string) ([][]bool, error) {
	return w.Workspace.Contains(ctx, commits, paths, names)
}

// Publish implements ports.Workspace.
func (w *Workspace) Publish(ctx context.Context, o ports.Overlay, m ports.Merged, verified contract.VerificationStatus, force bool) (ports.Published, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return ports.Published{}, err
	}
	if m.Work == "" {
		tree, err := w.Workspace.Tree(ctx, mine.Overlay, "A task's work", mine.Ref.Run, mine.Ref.Task)
		if err != nil {
			return ports.Published{}, err
		}
		m.Work = tree.Commit
	}
	req := workspace.PublishRequest{
		ID: mine.publish("publish"), Overlay: mine.Overlay, Tree: m.Work, Run: mine.Ref.Run, Task: mine.Ref.Task,
		Message: w.message(ctx, mine.Ref.Task),
	}
	if verified == contract.VerificationPass && !force {
		req.VerifiedTree, req.Scope = m.Tree, m.Scope
	}
	var p workspace.Published
	err = w.Mirror.WithChanges(ctx, false, func(mirror.Held) (paths []string, by document.Author, err error) {
		p, err = w.Workspace.Publish(ctx, req)
		for _, changed := range p.Changed {
			if !slices.ContainsFunc(p.Conflicts, func(k wire.Conflict) bool { return k.Path == changed }) {
				paths = append(paths, string(changed))
			}
		}
		if p.Reverify != "" {
			paths = nil // nothing was published
		}
		return paths, byTask(mine.Ref), err
	})
	if err != nil {
		return ports.Published{}, err
	}
	if p.Reverify != "" {
		return ports.Published{}, fault.New("runspace.Publish", fault.Conflict, "", errors.New("the live tree changed since the merge was verified"))
	}
	w.Shell.Changed()
	left := mirror.Unapplied{Publish: req.ID, Base: mine.Base(), Tree: m.Work, By: byTask(mine.Ref)}
	for _, k := range p.Conflicts {
		left.Paths = append(left.Paths, string(k.Path))
	}
	// It is published, whether or not the caller still waits, so the user must see all of
	// it.
	proposed, err := w.Mirror.Propose(context.WithoutCancel(ctx), left)
	if err != nil {
		return ports.Published{}, err
	}
	commit := p.Commit
	if commit == "" {
		commit = mine.Base()
	}
	return ports.Published{Checkpoint: commit, Tree: p.MergedTree, Conflicts: shown.Kept(p.Conflicts), Proposed: proposed}, nil
}

// message returns a task's goal, for the checkpoint's title.
func (w *Workspace) message(ctx context.Context, task string) string {
	t, err := w.State.Task(ctx, task)
	if err != nil || t.Goal == "" {
		return "A task's work"
	}
	goal, _, _ := strings.Cut(t.Goal, "\n")
	return contract.Clip(goal, 200)
}

// Invert implements ports.Workspace.
func (w *Workspace) Invert(ctx context.Context, o ports.Overlay) ([]view.Kept, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return nil, err
	}
	p, err := w.Workspace.Invert(ctx, mine.publish("invert"), mine.Overlay, mine.Ref.Run, mine.Ref.Task)
	w.Shell.Changed()
	var kept []view.Kept
	for _, k := range p.Conflicts {
		kept = append(kept, view.Kept{Path: k.Path.Shown(), Reason: k.Reason})
	}
	return kept, err
}

// Drop implements ports.Workspace.
func (w *Workspace) Drop(ctx context.Context, o ports.Overlay) error {
	mine, err := overlayOf(o)
	if err != nil {
		return err
	}
	return w.Workspace.Drop(ctx, mine.Overlay)
}

// Keep implements ports.Workspace.
func (w *Workspace) Keep(ctx context.Context, o ports.Overlay) (*contract.KeptTree, error) {
	mine, err := overlayOf(o)
	if err != nil {
		return nil, err
	}
	k, err := w.Workspace.Keep(ctx, mine.Overlay, "What a task wrote that was not published", mine.Ref.Run, mine.Ref.Task)
	if err != nil || k.Commit == "" {
		return nil, err
	}
	return &contract.KeptTree{Commit: k.Commit, Base: mine.Base(), Paths: k.Paths}, nil
}

// Sweep implements ports.Workspace.
func (w *Workspace) Sweep(ctx context.Context, but []ports.TaskRef) error {
	kept := map[string]bool{}
	for _, t := range but {
		kept[overlayID(t)] = true
	}
	return w.Workspace.DropAll(ctx, func(id string) bool { return isOverlayID(id) && !kept[id] })
}

// Git implements ports.Workspace.
func (w *Workspace) Git(ctx context.Context, r ports.GitRequest) (ports.GitReply, error) {
	s := r.Step
	var paths []string
	if s.Path != "" {
		paths = []string{s.Path}
	}
	switch s.Op {
	case contract.GitCheckpoint:
		message := s.Message
		if message == "" {
			message = "Checkpoint"
		}
		k, err := w.Workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: message, Run: r.Run, Task: r.Task})
		return ports.GitReply{Output: "checkpoint " + k.Commit + "\n", Checkpoint: k.Commit}, err
	case contract.GitRestore:
		var res workspace.Restored
		err := w.Mirror.WithChanges(ctx, false, func(held mirror.Held) (_ []string, by document.Author, err error) {
			keep, err := held.Files(ctx)
			if err == nil {
				res, err = w.Workspace.Restore(ctx, workspace.RestoreRequest{To: s.Ref, Paths: paths, Keep: keep})
			}
			return shown.Paths(res.Changes), byTask(ports.TaskRef{Run: r.Run, Task: r.Task}), err
		})
		w.Shell.Changed()
		return ports.GitReply{Output: fmt.Sprintf("restored %d paths from %s; before it was %s\n", len(res.Changes), res.To, res.Safety), Checkpoint: res.Checkpoint}, err
	case contract.GitDiff:
		req := wire.DiffRequest{From: s.Ref}
		for _, p := range paths {
			req.Paths = append(req.Paths, wire.Path(p))
		}
		d, err := w.Workspace.Diff(ctx, req)
		return ports.GitReply{Output: d.Diff}, err
	case contract.GitLog:
		list, err := w.Workspace.Checkpoints(ctx, "", 30)
		var b strings.Builder
		for _, k := range list {
			fmt.Fprintf(&b, "%s %s %s %s\n", k.Commit[:10], k.Verified, k.Kind, k.Message)
		}
		return ports.GitReply{Output: b.String()}, err
	case contract.GitStatus:
		st, err := w.Workspace.Status(ctx)
		var b strings.Builder
		for _, ch := range st.Changes {
			fmt.Fprintf(&b, "%s %s\n", ch.Op, ch.Path.Shown())
		}
		return ports.GitReply{Output: b.String()}, err
	}
	return ports.GitReply{}, fault.New("runspace.Git", fault.Invalid, "", fmt.Errorf("there is no operation %q", s.Op))
}

// Changed implements ports.Workspace.
func (w *Workspace) Changed(ctx context.Context, from, to string) ([]contract.Change, error) {
	diff, err := w.Workspace.Diff(ctx, wire.DiffRequest{From: from, To: to, MaxBytes: -1})
	return shown.Changes(diff.Changes), err
}

// LiveDiff implements ports.Workspace.
func (w *Workspace) LiveDiff(ctx context.Context, from string, paths []string, max int) (string, error) {
	req := wire.DiffRequest{From: from, MaxBytes: max}
	for _, p := range paths {
		req.Paths = append(req.Paths, wire.Path(p))
	}
	diff, err := w.Workspace.Diff(ctx, req)
	if diff.Truncated {
		diff.Diff += "\n(the rest is not shown)\n"
	}
	return diff.Diff, err
}

// ReadFile implements ports.Workspace.
func (w *Workspace) ReadFile(ctx context.Context, p string, max int) ([]byte, error) {
	return w.Workspace.ReadAll(ctx, "", p, max)
}

// Folders implements ports.Workspace: the root's folders and, one level
// below workspace/, the projects.
func (w *Workspace) Folders(ctx context.Context) ([]string, error) {
	var out []string
	for _, dir := range []string{".", "workspace"} {
		files, _, err := w.Workspace.Files(ctx, dir, "", 0)
		if fault.Is(err, fault.NotFound) {
			continue // a program that may write to the tree may have removed workspace/
		}
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f.Kind == "dir" && len(out) < 200 {
				out = append(out, f.Path.Shown())
			}
		}
	}
	return out, nil
}

// Artifact implements ports.Workspace.
func (w *Workspace) Artifact(ctx context.Context, commit, p string) (io.ReadCloser, error) {
	content, err := w.Workspace.Read(ctx, commit, p, 0, 0)
	if err != nil {
		return nil, err
	}
	return content, nil
}

// byTask returns the Associate as an author.
func byTask(t ports.TaskRef) document.Author {
	return document.Author{Name: string(contract.KindAssociate), By: contract.AssociateOf(t.Task), Run: t.Run, Task: t.Task}
}
