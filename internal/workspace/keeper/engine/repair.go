package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// damagedHead is a newest checkpoint that can't be read: the commit that the branch names
// ("" if it names nothing) and the newest checkpoint that is whole.
type damagedHead struct {
	broken string
	whole  string
	reason string
}

// fault is the error of everything except reading live files until Repair: anything else
// would build on what is missing.
func (d *damagedHead) fault() error {
	last := "no checkpoint before it can be read either"
	if d.whole != "" {
		last = "the last whole one is " + d.whole
	}
	return fault.New("", fault.Damaged, "The files are as they were. Repair goes on from the last whole checkpoint with the files as they are, and keeps what is damaged.",
		fmt.Errorf("the newest checkpoint %s %s; %s", d.broken, d.reason, last))
}

// whole is an error if the history is damaged, or Shutdown was called.
func (e *Engine) whole() error {
	if e.shut {
		return fault.New("", fault.Unavailable, "Wake the computer.", errors.New("the keeper was shut down"))
	}
	if e.damaged == nil {
		return nil
	}
	return e.damaged.fault()
}

// loadHead reads the newest commit and its content. If the commit or a tree of it is
// damaged, the engine opens only for reading live files and repair.
func (e *Engine) loadHead(ctx context.Context) error {
	e.moves.Head, e.moves.Tree, e.scanner.Index, e.damaged = "", "", scan.NewIndex(nil), nil
	id, err := e.store.GitLine(ctx, "for-each-ref", "--format=%(objectname)", gitstore.Main)
	if err != nil {
		return err
	}
	if id == "" {
		// There is no history yet, or the ref of the newest commit is gone: then history must not begin again.
		began, err := e.hasBegun(ctx)
		if err != nil || !began || defence.Off(defence.HistoryBegun) {
			return err
		}
	}
	reason := "is not named by anything"
	if wire.IsHex(id) && len(id) == 40 {
		tree, t, why, err := e.readCheckpoint(ctx, id)
		if err != nil {
			return err
		}
		if reason = why; reason == "" || defence.Off(defence.HistoryWhole) {
			e.scanner.Invalidate()
			e.moves.Head, e.moves.Tree, e.scanner.Index = id, tree, scan.NewIndex(t)
			return nil
		}
	}
	d := &damagedHead{broken: id, reason: reason}
	if d.whole, err = e.lastWhole(ctx, id); err != nil {
		return err
	}
	e.damaged = d
	e.opts.Logger.ErrorContext(ctx, "the newest checkpoint is damaged", "commit", id, "reason", reason, "last whole", d.whole)
	return nil
}

// hasBegun reports whether there was a history: the branch's file, or a ref of the engine's
// own, exists.
func (e *Engine) hasBegun(ctx context.Context) (bool, error) {
	if there, err := e.store.HasRefFile(gitstore.Main); err != nil || there {
		return there, err
	}
	out, err := e.store.GitLine(ctx, "for-each-ref", "--count=1", "--format=%(refname)", "refs/choir/")
	return out != "", err
}

// readCheckpoint reads a commit and its tree; reason says why one of them can't be read.
func (e *Engine) readCheckpoint(ctx context.Context, id string) (tree string, t gitstore.Tree, reason string, err error) {
	content, _, reason, err := e.store.Check(ctx, id, "commit")
	if err != nil || reason != "" {
		return "", nil, reason, err
	}
	tree, _ = gitstore.CommitNames(content)
	t, err = e.store.ReadTree(ctx, tree, true)
	if err == nil {
		return tree, t, "", nil
	}
	e.store.ForgetTrees()
	if ctx.Err() != nil {
		return "", nil, "", ctx.Err()
	}
	if _, _, reason, cerr := e.store.Check(ctx, tree, "tree"); cerr != nil || reason != "" {
		return "", nil, "has a tree that " + reason, cerr
	}
	return "", nil, "has a folder that can't be read", nil
}

// lastWhole finds the newest checkpoint that can be read, "" when there is none: among the
// ancestors of the broken one and, where that trail ends, among all stored commits.
func (e *Engine) lastWhole(ctx context.Context, broken string) (string, error) {
	const far = 1000
	for id, n := broken, 0; wire.IsHex(id) && n < far; n++ {
		content, _, reason, err := e.store.Check(ctx, id, "commit")
		if err != nil {
			return "", err
		}
		if reason != "" {
			break
		}
		if id != broken {
			if _, _, reason, err := e.readCheckpoint(ctx, id); err != nil || reason == "" {
				return id, err
			}
		}
		_, parents := gitstore.CommitNames(content)
		if len(parents) == 0 {
			return "", nil
		}
		id = parents[0]
	}
	list, err := e.storedCheckpoints(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range list[:min(len(list), far)] {
		if c.Commit == broken {
			continue
		}
		if _, _, reason, err := e.readCheckpoint(ctx, c.Commit); err != nil || reason == "" {
			return c.Commit, err
		}
	}
	return "", nil
}

// storedCheckpoints lists the checkpoints among all stored commits, newest first, without
// those that were prepared and never became part of the history.
func (e *Engine) storedCheckpoints(ctx context.Context) ([]wire.Commit, error) {
	out, err := e.store.Git(ctx, nil, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
	if err != nil && len(out) == 0 {
		return nil, err
	}
	var list []wire.Commit
	for line := range strings.Lines(string(out)) {
		id, ok := strings.CutPrefix(strings.TrimSpace(line), "commit ")
		if !ok {
			continue
		}
		content, _, reason, err := e.store.Check(ctx, id, "commit")
		if err != nil {
			return nil, err
		}
		if reason != "" {
			continue
		}
		_, message, _ := strings.Cut(string(content), "\n\n")
		c := wire.Commit{Commit: id, Note: gitstore.DecodeNote(message)}
		if c.Kind == "" || c.Kind == "kept" {
			continue
		}
		if c.Publish != "" {
			if done, err := disk.Exists(e.moves.PlanDir(c.Publish, "result.json")); err != nil || !done {
				continue
			}
		}
		if c.At == 0 {
			c.At = gitstore.CommitTime(content) * 1000
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b wire.Commit) int { return int(b.At - a.At) })
	return list, nil
}

// Repair continues after the newest checkpoint was found damaged, from the last whole one
// and with the live tree as it is. The damaged objects stay where they are, and a ref keeps
// their name.
func (e *Engine) Repair(ctx context.Context, req wire.RepairRequest) (wire.RepairReply, error) {
	const op = "keeper.Repair"
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.damaged
	if d == nil {
		return wire.RepairReply{}, nil
	}
	reply := wire.RepairReply{Broken: d.broken, Reason: d.reason, From: d.whole}
	if err := e.keepDamaged(ctx, d.broken); err != nil {
		return reply, fault.Wrap(op, err)
	}
	if err := e.letGo(ctx, d.whole); err != nil {
		return reply, fault.Wrap(op, err)
	}
	// This is the last step that only a repair makes: a process killed before it repairs
	// again, and one killed after it continues as after any other crash.
	if d.whole != "" {
		if err := e.store.MoveMain(d.whole); err != nil {
			return reply, fault.Wrap(op, err)
		}
	} else if err := e.store.RemoveRefFile(gitstore.Main); err != nil {
		return reply, fault.Wrap(op, err)
	}
	e.crash("repair.moved")
	if err := e.loadHead(ctx); err != nil {
		return reply, fault.Wrap(op, err)
	}
	if d.whole == "" {
		e.damaged = nil // refs of the old history exist; the history begins anew
	}
	if err := e.whole(); err != nil {
		return reply, fault.Wrap(op, err)
	}
	c, err := e.checkpoint(ctx, wire.CheckpointRequest{Force: true, Note: wire.Note{Kind: "auto", Seq: req.Seq, Message: fmt.Sprintf(
		"The newest checkpoint %.12s %s: this goes on from %.12s with the files as they are", d.broken, d.reason, d.whole)}})
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	reply.Checkpoint = &c
	return reply, nil
}

// keepDamaged keeps the id of the damaged commit: in a file, by which the host recognises a
// history that was repaired from an older copy (see DamagedFile), and in a ref if git can
// name it.
func (e *Engine) keepDamaged(ctx context.Context, id string) error {
	name := "head-" + publish.Token()
	if wire.IsHex(id) && len(id) == 40 {
		name = filepath.Base(wire.DamagedFile(id))
		if err := e.store.ForceRef(ctx, gitstore.DamagedRefs+id[:12], id); err != nil {
			e.opts.Logger.WarnContext(ctx, "git can't name what is damaged; a file keeps its name", "commit", id, "error", err)
		}
	}
	if err := os.MkdirAll(e.store.Work("damaged"), 0o755); err != nil {
		return err
	}
	return disk.WriteDurably(e.store.Work("damaged", name), []byte(id+"\n"))
}

// letGo ends what was built on a damaged checkpoint, so that the history can continue from
// the last whole one.
func (e *Engine) letGo(ctx context.Context, whole string) error {
	id, err := e.store.NameOf(ctx, gitstore.Logged)
	if err != nil {
		return err
	}
	if id != "" {
		if _, _, reason, err := e.store.Check(ctx, id, "commit"); err != nil {
			return err
		} else if reason != "" {
			if err := e.store.RemoveRefFile(gitstore.Logged); err != nil {
				return err
			}
			if whole != "" {
				if err := e.store.ForceRef(ctx, gitstore.Logged, whole); err != nil {
					return err
				}
			}
		}
	}
	return e.endLostPlans(ctx, whole)
}

// endLostPlans ends plans that were made from a checkpoint that will no longer be part of
// the history. What they moved aside goes to the trash.
func (e *Engine) endLostPlans(ctx context.Context, newest string) error {
	ids, err := e.moves.Pending(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := e.moves.LoadPlan(id)
		if err != nil {
			return err
		}
		if p.From == newest || p.Commit == newest {
			continue
		}
		if err := e.moves.TrashAside(id, p.Ops); err != nil {
			return err
		}
		if err := e.moves.ForgetPlan(id); err != nil {
			return err
		}
	}
	return nil
}
