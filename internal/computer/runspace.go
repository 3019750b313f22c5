package computer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// runWorkspace is the workspace as runs see it.
type runWorkspace struct{ c *Computer }

// overlay is an attempt's copy of the workspace.
type overlay struct {
	workspace.Overlay
	ref dispatch.TaskRef
}

// Base implements dispatch.Overlay.
func (o *overlay) Base() string { return o.Overlay.Base }

// publish names one of the attempt's publishes. The name is the same after a
// crash, so what was published already is recognised.
func (o *overlay) publish(what string) string { return contract.DeriveID(o.ID, what) }

func asOverlay(o dispatch.Overlay) (*overlay, error) {
	mine, ok := o.(*overlay)
	if !ok {
		return nil, fault.New("computer.runs", fault.Internal, "", fmt.Errorf("%T is no overlay of this computer", o))
	}
	return mine, nil
}

// Checkpoint implements dispatch.Workspace.
func (w *runWorkspace) Checkpoint(ctx context.Context, r dispatch.CheckpointRequest) (string, error) {
	w.c.mirror.Settle(ctx, document.By(document.Nobody), false)
	k, err := w.c.workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: r.Kind, Message: r.Message, Run: r.Run, Task: r.Task})
	return k.Commit, err
}

// Begin implements dispatch.Workspace.
func (w *runWorkspace) Begin(ctx context.Context, t dispatch.TaskRef, base string) (dispatch.Overlay, error) {
	o, err := w.c.workspace.Begin(ctx, overlayID(t), base)
	if err != nil {
		return nil, err
	}
	return &overlay{o, t}, nil
}

// Reopen implements dispatch.Workspace. An attempt whose tree is gone must not
// go on in an empty one.
func (w *runWorkspace) Reopen(ctx context.Context, t dispatch.TaskRef, base string) (dispatch.Overlay, error) {
	there, err := w.c.boxes.Volumes().Exists(ctx, sandbox.Written(overlayID(t)))
	if err != nil {
		return nil, fault.Wrap("computer.Reopen", err)
	}
	if !there {
		return nil, fault.New("computer.Reopen", fault.NotFound, "", errors.New("the tree of the interrupted attempt is gone"))
	}
	return w.Begin(ctx, t, base)
}

func overlayID(t dispatch.TaskRef) string { return fmt.Sprintf("%s-%d", t.Task, t.Attempt) }

// isOverlayID says whether a name is one that overlayID gives: others have boxes
// beside them.
func isOverlayID(id string) bool {
	i := strings.LastIndexByte(id, '-')
	if i < 0 || contract.ValidID("task", id[:i]) != nil {
		return false
	}
	n, err := strconv.Atoi(id[i+1:])
	return err == nil && n > 0
}

// PublishLive implements dispatch.Workspace. Once somebody has taken back what
// the task had published so far, the rest waits for its end.
func (w *runWorkspace) PublishLive(ctx context.Context, o dispatch.Overlay) (int, error) {
	mine, err := asOverlay(o)
	if err != nil {
		return 0, err
	}
	if back, err := w.tookBack(ctx, mine.ref.Task); err != nil || back {
		return 0, err
	}
	p, err := w.c.workspace.PublishLive(ctx, contract.NewID(), mine.Overlay, mine.ref.Run, mine.ref.Task)
	if err == nil && len(p.Changed) > 0 {
		w.c.shell.ThemeChanged()
	}
	return len(p.Changed), err
}

// tookBack reports whether the shell was restored since the task first
// published an edit to it.
func (w *runWorkspace) tookBack(ctx context.Context, task string) (bool, error) {
	if err := w.c.state.CaughtUp(ctx, w.c.log); err != nil {
		return false, err
	}
	publishes, err := w.c.state.Publishes(ctx, task, false)
	if err != nil {
		return false, err
	}
	first := slices.IndexFunc(publishes, func(p state.Publish) bool { return p.Live })
	if first < 0 {
		return false, nil
	}
	return w.c.shell.RestoredSince(ctx, publishes[first].StartedSeq)
}

// Settle implements dispatch.Workspace.
func (w *runWorkspace) Settle(ctx context.Context, o dispatch.Overlay) error {
	mine, err := asOverlay(o)
	if err != nil {
		return err
	}
	return w.c.workspace.SettleOverlay(ctx, mine.Overlay)
}

// Merge implements dispatch.Workspace. No tree has the id that it pretends was
// verified, so the merge is prepared and never applied.
func (w *runWorkspace) Merge(ctx context.Context, o dispatch.Overlay) (dispatch.Merged, error) {
	mine, err := asOverlay(o)
	if err != nil {
		return dispatch.Merged{}, err
	}
	tree, err := w.c.workspace.Tree(ctx, mine.Overlay, "A task's work", mine.ref.Run, mine.ref.Task)
	if err != nil {
		return dispatch.Merged{}, err
	}
	p, err := w.c.workspace.Publish(ctx, workspace.PublishRequest{
		ID: mine.publish("merge"), Overlay: mine.Overlay, Tree: tree.Commit, VerifiedTree: "none", Run: mine.ref.Run, Task: mine.ref.Task,
	})
	if err != nil {
		return dispatch.Merged{}, err
	}
	out := dispatch.Merged{Commit: p.Reverify, Tree: p.MergedTree, Work: tree.Commit, Conflicts: conflictsOf(p.Conflicts)}
	diff, err := w.c.workspace.Diff(ctx, wire.DiffRequest{A: mine.Base(), B: tree.Commit})
	if err != nil {
		return dispatch.Merged{}, err
	}
	if out.Installed, err = w.c.workspace.Installed(ctx, mine.Overlay, diff.Changes); err != nil {
		return dispatch.Merged{}, err
	}
	slices.SortStableFunc(tree.Left, func(a, b wire.Skip) int { return b.Files - a.Files }) // what stands for most comes first
	for _, s := range tree.Left {
		if !s.Kept {
			out.Left = append(out.Left, dispatch.Kept{Path: s.Path.Shown(), Reason: s.Reason})
		}
	}
	out.Changes, out.Diff, out.DiffCut = changesOf(withRepositories(diff)), diff.Diff, diff.Truncated
	return out, nil
}

// Beside implements dispatch.Workspace.
func (w *runWorkspace) Beside(ctx context.Context, commits, paths, names []string) ([][]bool, error) {
	return w.c.workspace.Beside(ctx, commits, paths, names)
}

// Publish implements dispatch.Workspace.
func (w *runWorkspace) Publish(ctx context.Context, o dispatch.Overlay, m dispatch.Merged, verified contract.VerificationStatus, force bool) (dispatch.Published, error) {
	mine, err := asOverlay(o)
	if err != nil {
		return dispatch.Published{}, err
	}
	if m.Work == "" {
		tree, err := w.c.workspace.Tree(ctx, mine.Overlay, "A task's work", mine.ref.Run, mine.ref.Task)
		if err != nil {
			return dispatch.Published{}, err
		}
		m.Work = tree.Commit
	}
	req := workspace.PublishRequest{
		ID: mine.publish("publish"), Overlay: mine.Overlay, Tree: m.Work, Run: mine.ref.Run, Task: mine.ref.Task,
		Message: w.message(ctx, mine.ref.Task),
	}
	if verified == contract.VerificationPass && !force {
		req.VerifiedTree, req.Scope = m.Tree, m.Scope
	}
	var p workspace.Published
	err = w.c.mirror.Around(ctx, false, func(mirror.Held) (paths []string, by document.Author, err error) {
		p, err = w.c.workspace.Publish(ctx, req)
		for _, changed := range p.Changed {
			if !slices.ContainsFunc(p.Conflicts, func(k wire.Conflict) bool { return k.Path == changed }) {
				paths = append(paths, string(changed))
			}
		}
		if p.Reverify != "" {
			paths = nil // nothing was published
		}
		return paths, byTask(mine.ref), err
	})
	if err != nil {
		return dispatch.Published{}, err
	}
	if p.Reverify != "" {
		return dispatch.Published{}, fault.New("computer.Publish", fault.Conflict, "", errors.New("the live tree changed since the merge was verified"))
	}
	w.c.shell.Changed()
	left := mirror.Left{Publish: req.ID, Base: mine.Base(), Tree: m.Work, By: byTask(mine.ref)}
	for _, k := range p.Conflicts {
		left.Paths = append(left.Paths, string(k.Path))
	}
	// It is published, whoever waits for it: the user is to see all of it.
	proposed, err := w.c.mirror.Propose(context.WithoutCancel(ctx), left)
	if err != nil {
		return dispatch.Published{}, err
	}
	commit := p.Commit
	if commit == "" {
		commit = mine.Base()
	}
	return dispatch.Published{Checkpoint: commit, Tree: p.MergedTree, Conflicts: conflictsOf(p.Conflicts), Proposed: proposed}, nil
}

// message is a task's goal, for the checkpoint's title.
func (w *runWorkspace) message(ctx context.Context, task string) string {
	t, err := w.c.state.Task(ctx, task)
	if err != nil || t.Goal == "" {
		return "A task's work"
	}
	goal, _, _ := strings.Cut(t.Goal, "\n")
	return contract.Clip(goal, 200)
}

// Invert implements dispatch.Workspace.
func (w *runWorkspace) Invert(ctx context.Context, o dispatch.Overlay) ([]dispatch.Kept, error) {
	mine, err := asOverlay(o)
	if err != nil {
		return nil, err
	}
	p, err := w.c.workspace.Invert(ctx, mine.publish("invert"), mine.Overlay, mine.ref.Run, mine.ref.Task)
	w.c.shell.Changed()
	var kept []dispatch.Kept
	for _, k := range p.Conflicts {
		kept = append(kept, dispatch.Kept{Path: k.Path.Shown(), Reason: k.Reason})
	}
	return kept, err
}

// Drop implements dispatch.Workspace. The tree that the keeper read stays
// behind its ref when keep is set.
func (w *runWorkspace) Drop(ctx context.Context, o dispatch.Overlay, keep bool) error {
	mine, err := asOverlay(o)
	if err != nil {
		return err
	}
	if keep {
		if _, err := w.c.workspace.Tree(ctx, mine.Overlay, "Kept for a look", mine.ref.Run, mine.ref.Task); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return w.c.workspace.Drop(ctx, mine.Overlay)
}

// Sweep implements dispatch.Workspace.
func (w *runWorkspace) Sweep(ctx context.Context, but []dispatch.TaskRef) error {
	kept := map[string]bool{}
	for _, t := range but {
		kept[overlayID(t)] = true
	}
	return w.c.workspace.DropAll(ctx, func(id string) bool { return isOverlayID(id) && !kept[id] })
}

// Git implements dispatch.Workspace.
func (w *runWorkspace) Git(ctx context.Context, r dispatch.GitRequest) (dispatch.GitReply, error) {
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
		k, err := w.c.workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: message, Run: r.Run, Task: r.Task})
		return dispatch.GitReply{Output: "checkpoint " + k.Commit + "\n", Checkpoint: k.Commit}, err
	case contract.GitRestore:
		var res workspace.Restored
		err := w.c.mirror.Around(ctx, false, func(held mirror.Held) (_ []string, by document.Author, err error) {
			keep, err := held.Files(ctx)
			if err == nil {
				res, err = w.c.workspace.Restore(ctx, workspace.RestoreRequest{To: s.Ref, Paths: paths, Keep: keep})
			}
			return pathsOf(res.Changes), byTask(dispatch.TaskRef{Run: r.Run, Task: r.Task}), err
		})
		w.c.shell.Changed()
		return dispatch.GitReply{Output: fmt.Sprintf("restored %d paths from %s; before it was %s\n", len(res.Changes), res.To, res.Safety), Checkpoint: res.Checkpoint}, err
	case contract.GitDiff:
		req := wire.DiffRequest{A: s.Ref}
		for _, p := range paths {
			req.Paths = append(req.Paths, wire.Path(p))
		}
		d, err := w.c.workspace.Diff(ctx, req)
		return dispatch.GitReply{Output: d.Diff}, err
	case contract.GitLog:
		list, err := w.c.workspace.Checkpoints(ctx, "", 30)
		var b strings.Builder
		for _, k := range list {
			fmt.Fprintf(&b, "%s %s %s %s\n", k.Commit[:10], k.Verified, k.Kind, k.Message)
		}
		return dispatch.GitReply{Output: b.String()}, err
	case contract.GitStatus:
		st, err := w.c.workspace.Status(ctx)
		var b strings.Builder
		for _, ch := range st.Changes {
			fmt.Fprintf(&b, "%s %s\n", ch.Op, ch.Path.Shown())
		}
		return dispatch.GitReply{Output: b.String()}, err
	}
	return dispatch.GitReply{}, fault.New("computer.Git", fault.Invalid, "", fmt.Errorf("there is no operation %q", s.Op))
}

// ReadFile implements dispatch.Workspace.
func (w *runWorkspace) ReadFile(ctx context.Context, p string, max int) ([]byte, error) {
	return w.c.workspace.ReadAll(ctx, "", p, max)
}

// Folders implements dispatch.Workspace: the root's folders and, one level
// below workspace/, the projects.
func (w *runWorkspace) Folders(ctx context.Context) ([]string, error) {
	var out []string
	for _, dir := range []string{".", "workspace"} {
		files, _, err := w.c.workspace.Files(ctx, dir, "", 0)
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

// Artifact implements dispatch.Workspace.
func (w *runWorkspace) Artifact(ctx context.Context, commit, p string) (io.ReadCloser, error) {
	content, err := w.c.workspace.Read(ctx, commit, p, 0, 0)
	if err != nil {
		return nil, err
	}
	return content, nil
}

// taskMounts is a task's view: its overlay, the history read-only, the ignored
// directories overlaid from live, and the shell's dependencies.
func (c *Computer) taskMounts(ctx context.Context, o *overlay) ([]sandbox.Mount, error) {
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: o.Lower, Upper: o.Upper},
		boxes.Git(),
	}
	for _, ig := range o.Ignored {
		if ig.Path == shell.ModulesPath {
			continue
		}
		mounts = append(mounts, sandbox.Mount{Target: path.Join("/computer", ig.Path), Mode: sandbox.Overlay, Lower: []sandbox.Volume{ig.Lower}, Upper: ig.Upper, Optional: true})
	}
	modules, err := c.shellModules(ctx, false)
	if err != nil {
		return nil, err
	}
	at, err := c.boxes.Home(ctx)
	return append(append(mounts, modules...), at), err
}

// verifyMounts is a check's view: the commit to verify with a throwaway upper,
// the base the task started from beside it, and the user's own ignored
// directories, throwaway as well. What the task put into ignored directories is
// not there: it is not published, so nothing may depend on it. shell says that it
// waits for the shell's dependencies.
func (c *Computer) verifyMounts(ctx context.Context, o *overlay, commit string, shell bool) ([]sandbox.Mount, func(), error) {
	layers, release, err := c.snapshot(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: layers}, boxes.Git(),
		{Lower: o.Lower, Target: contract.BaseInBox, Mode: sandbox.ReadOnly},
	}
	mounts = append(mounts, usersOwn(o.Ignored)...)
	modules, err := c.shellModules(ctx, shell)
	if err != nil {
		release()
		return nil, nil, err
	}
	at, err := c.boxes.Home(ctx)
	if err != nil {
		release()
		return nil, nil, err
	}
	return append(append(mounts, modules...), at), release, nil
}

// usersOwn are the ignored directories of a check's box: as the user has them,
// with nothing that the task put there.
func usersOwn(ignored []workspace.IgnoredDir) []sandbox.Mount {
	var out []sandbox.Mount
	for _, ig := range ignored {
		if ig.Path == shell.ModulesPath {
			continue
		}
		lower := []sandbox.Volume{ig.Lower}
		if defence.Off(defence.CheckDependencies) {
			lower = []sandbox.Volume{ig.Upper, ig.Lower}
		}
		out = append(out, sandbox.Mount{Target: path.Join("/computer", ig.Path), Mode: sandbox.Overlay, Lower: lower, Optional: true})
	}
	return out
}

// withRepositories are changes with those of nested repositories' own
// data: each as one, and by itself what git runs or obeys there. A task that only
// commits in one changed something as well.
func withRepositories(d wire.DiffReply) []wire.Change {
	out := slices.Clone(d.Changes)
	for _, repo := range d.Repositories {
		repo.Path += "/.git/"
		out = append(out, repo)
	}
	return append(out, d.Obeyed...)
}

func changesOf(in []wire.Change) []contract.Change {
	out := make([]contract.Change, 0, len(in))
	for _, ch := range in {
		out = append(out, contract.Change{Path: ch.Path.Shown(), PathBase64: base64Of(ch.Path), Op: contract.ChangeOp(ch.Op), Added: ch.Added, Removed: ch.Removed})
	}
	return out
}

func conflictsOf(in []wire.Conflict) []dispatch.Kept {
	out := make([]dispatch.Kept, 0, len(in))
	for _, k := range in {
		out = append(out, dispatch.Kept{Path: k.Path.Shown(), Reason: k.Reason})
	}
	return out
}

// byTask is the Associate as an author.
func byTask(t dispatch.TaskRef) document.Author {
	return document.Author{Name: string(contract.KindAssociate), By: contract.AssociateOf(t.Task), Run: t.Run, Task: t.Task}
}
