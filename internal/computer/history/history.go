package history

import (
	"context"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/memory"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const maxDiff = 512 << 10

// Shell is what the history needs of the desktop.
type Shell interface {
	Changed()
	WentBack()
	// MayGoBackUnasked returns an error that says why the desktop may not go back by
	// itself, or nil.
	MayGoBackUnasked(ctx context.Context, commit string) error
}

// Options are the parts that the history of one computer uses.
type Options struct {
	CID       contract.CID
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Documents *document.Documents
	Mirror    *mirror.Mirror
	Shell     Shell
	Memory    *memory.Memory
}

// tree is what undo reads of checkpoints and of the live tree; *workspace.Workspace is one.
type tree interface {
	Diff(ctx context.Context, req wire.DiffRequest) (wire.DiffReply, error)
	Read(ctx context.Context, commit, p string, offset, limit int64) (*workspace.Content, error)
}

// History is time travel in one computer whose files and documents are open.
type History struct {
	options Options
	tree    tree
}

// New makes a History.
func New(o Options) *History { return &History{o, o.Workspace} }

// Checkpoint answers rpc.CheckpointCreate.
func (h *History) Checkpoint(ctx context.Context, by contract.Actor, message string) (view.Checkpointed, error) {
	h.options.Mirror.Settle(ctx, document.By(document.Nobody), true)
	k, err := h.options.Workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: message, By: by})
	if err != nil {
		return view.Checkpointed{}, err
	}
	seq, err := h.checkpointSeq(ctx, k.Commit)
	return view.Checkpointed{ID: k.Commit, Sequence: seq, Created: k.Created, Unkept: shown.Unkept(k.LeftOut)}, err
}

func (h *History) checkpointSeq(ctx context.Context, commit string) (uint64, error) {
	if err := h.options.State.CaughtUp(ctx, h.options.Log); err != nil {
		return 0, err
	}
	row, err := h.options.State.Checkpoint(ctx, commit)
	return row.Sequence, err
}

// Diff answers rpc.CheckpointDiff.
func (h *History) Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error) {
	if err := h.options.State.CaughtUp(ctx, h.options.Log); err != nil {
		return view.Diff{}, err
	}
	req := wire.DiffRequest{From: r.From, To: r.To, MaxBytes: maxDiff}
	if r.Path != "" {
		req.Paths = []wire.Path{wire.Path(r.Path)}
	}
	if r.To != "" {
		to, err := h.options.State.Checkpoint(ctx, r.To)
		if err != nil {
			return view.Diff{}, err
		}
		req.To = to.Commit
		if r.From == "" {
			req.From = to.Parent
		}
	}
	if req.From != "" {
		from, err := h.options.State.Checkpoint(ctx, req.From)
		if err != nil {
			return view.Diff{}, err
		}
		req.From = from.Commit
	} else if req.To != "" {
		req.From = emptyTree // the initial checkpoint has no parent
	}
	d, err := h.options.Workspace.Diff(ctx, req)
	return view.Diff{From: req.From, To: req.To, Changes: shown.Changes(shown.WithRepositories(d)), Diff: d.Diff, Truncated: d.Truncated || d.More > 0}, err
}

// emptyTree is git's id of the empty tree.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Restore answers rpc.CheckpointRestore.
func (h *History) Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	if err := h.options.State.CaughtUp(ctx, h.options.Log); err != nil {
		return view.Restored{}, err
	}
	switch {
	case r.Undo:
		return h.undo(ctx, r)
	case r.Run != "":
		return h.undoRun(ctx, r)
	case r.To == "" || view.ValidRevision("to", r.To) != nil:
		return h.bringBack(ctx, r)
	}
	to, err := h.options.State.Checkpoint(ctx, r.To)
	if err != nil {
		return view.Restored{}, err
	}
	if r.Unasked && !r.DryRun {
		if err := h.options.Shell.MayGoBackUnasked(ctx, to.Commit); err != nil {
			return view.Restored{}, err
		}
	}
	return h.goBack(ctx, h.options.Workspace.Restore, workspace.RestoreRequest{To: to.Commit, Paths: r.Paths, DryRun: r.DryRun, By: r.By})
}

// goBack restores, and tells the desktop. The files of documents stay as they are, except
// those that are named, unless req names paths.
func (h *History) goBack(ctx context.Context, do restoring, req workspace.RestoreRequest, documents ...string) (view.Restored, error) {
	done, err := h.restore(ctx, do, req, documents)
	if err != nil {
		return view.Restored{}, err
	}
	out := view.Restored{
		To: done.To, DryRun: req.DryRun, Changes: shown.Changes(shown.WithRepositories(done.DiffReply)), Truncated: done.More > 0,
		Kept: shown.Kept(done.Conflicts), Unkept: shown.Unkept(done.LeftOut), Safety: done.Safety, Checkpoint: done.Checkpoint,
	}
	if req.DryRun {
		return out, nil
	}
	if shell.Touches(shown.Paths(done.Changes)) && len(done.Changes) > 0 {
		h.options.Shell.WentBack()
	}
	h.options.Shell.Changed()
	if done.Checkpoint != "" {
		out.Sequence, err = h.checkpointSeq(ctx, done.Checkpoint)
	}
	return out, err
}

// restoring is a method of the workspace that restores.
type restoring func(context.Context, workspace.RestoreRequest) (workspace.Restored, error)

// restore restores files, and the documents in them: the content of a file becomes a
// revision by whoever restored. If no path is named, the files of documents stay as they
// are, but for those in documents.
func (h *History) restore(ctx context.Context, do restoring, req workspace.RestoreRequest, documents []string) (done workspace.Restored, err error) {
	kept := func(files []string, err error) ([]string, error) {
		return slices.DeleteFunc(files, func(p string) bool { return slices.Contains(documents, p) }), err
	}
	if req.DryRun {
		if req.Keep, err = kept(h.options.Mirror.Files(ctx)); err != nil {
			return done, err
		}
		return do(ctx, req)
	}
	err = h.options.Mirror.WithChanges(ctx, true, func(held mirror.Held) ([]string, document.Author, error) {
		by := document.By(req.By)
		if req.Keep, err = kept(held.Files(ctx)); err != nil {
			return nil, by, err
		}
		done, err = do(ctx, req)
		if done.Checkpoint != "" {
			by.Cause = workspace.RestoredID(h.options.CID, done.Checkpoint)
		}
		return shown.Paths(done.Changes), by, err
	})
	return done, err
}
