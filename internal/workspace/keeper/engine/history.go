package engine

import (
	"context"
	"fmt"
	"io"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// fewCommits is how many commits are read one by one, rather than by a git process of their
// own.
const fewCommits = 20

// List returns checkpoints, newest first.
func (e *Engine) List(ctx context.Context, req wire.ListRequest) ([]wire.Commit, error) {
	const op = "keeper.List"
	if err := e.readable(); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if req.Limit <= 0 {
		req.Limit = 100
	}
	from := gitstore.Main
	if req.Before != "" {
		id, err := e.store.Resolve(ctx, req.Before)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		if from, err = e.store.Parent(ctx, id); err != nil || from == "" {
			return []wire.Commit{}, fault.Wrap(op, err)
		}
	} else if e.Head() == "" {
		return []wire.Commit{}, nil
	}
	if req.Until == "" && req.Limit <= fewCommits {
		if from == gitstore.Main {
			from = e.Head()
		}
		out, err := e.store.Line(ctx, from, req.Limit)
		return out, fault.Wrap(op, err)
	}
	args := []string{from}
	if req.Until != "" {
		id, err := e.store.Resolve(ctx, req.Until)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		args = append(args, "^"+id)
	}
	out, err := e.store.Log(ctx, min(req.Limit, 10_000), args...)
	return out, fault.Wrap(op, err)
}

// readable is whole for callers that do not hold the lock.
func (e *Engine) readable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whole()
}

// Head returns the newest commit, or "" before the first.
func (e *Engine) Head() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moves.Head
}

// Diff returns what differs between two states.
func (e *Engine) Diff(ctx context.Context, req wire.DiffRequest) (wire.DiffReply, error) {
	const op = "keeper.Diff"
	a, err := e.treeish(ctx, req.From, "HEAD")
	if err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	b, err := e.treeish(ctx, req.To, "")
	if err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	if err := checkPaths(req.Paths); err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	reply, err := e.store.Diff(ctx, a, b, req)
	return reply, fault.Wrap(op, err)
}

func checkPaths(paths []wire.Path) error {
	if len(paths) > 1000 {
		return fault.New("", fault.Invalid, "Name a directory instead.", fmt.Errorf("%d paths are named; at most 1000 are allowed", len(paths)))
	}
	for _, p := range paths {
		if err := wire.CheckPath(string(p), true); err != nil {
			return fault.New("", fault.Invalid, "Name paths relative to the workspace's root.", fmt.Errorf("path %q %w", wire.Short(string(p)), err))
		}
	}
	return nil
}

// treeish returns the tree of a commit or tree or, when name and fallback are "", of the
// live tree as it is now.
func (e *Engine) treeish(ctx context.Context, name, fallback string) (string, error) {
	if name == "" {
		name = fallback
	}
	if name == "" {
		return e.liveTree(ctx)
	}
	if wire.IsHex(name) && len(name) == 40 {
		if id, err := e.store.NameOf(ctx, name+"^{tree}"); err != nil || id != "" {
			return id, err
		}
	}
	id, err := e.store.Resolve(ctx, name)
	if err != nil {
		return "", err
	}
	return e.store.NameOf(ctx, id+"^{tree}")
}

// liveTree writes the live tree's content as objects, without a commit.
func (e *Engine) liveTree(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cap, err := e.scanner.Capture(ctx, true)
	if err != nil {
		return "", err
	}
	defer e.scanner.Index.Take(cap)()
	return e.scanner.Index.Write(ctx, e.store)
}

// Show streams a file as it was in a commit and returns its mode and size. At
// most max bytes are written when max >= 0.
func (e *Engine) Show(ctx context.Context, commit, p string, max int64, w io.Writer) (gitstore.Entry, int64, error) {
	const op = "keeper.Show"
	if err := checkPaths([]wire.Path{wire.Path(p)}); err != nil {
		return gitstore.None, 0, fault.Wrap(op, err)
	}
	tree, err := e.treeish(ctx, commit, "HEAD")
	if err != nil {
		return gitstore.None, 0, fault.Wrap(op, err)
	}
	en, err := e.store.Lookup(ctx, tree, p)
	if err != nil {
		return gitstore.None, 0, fault.Wrap(op, err)
	}
	if !en.Exists() {
		return gitstore.None, 0, fault.New(op, fault.NotFound, "`choir diff` shows what a checkpoint holds.", fmt.Errorf("%q is not in that checkpoint", wire.Short(p)))
	}
	size, err := e.store.ReadContent(ctx, en, 0, max, w)
	return en, size, fault.Wrap(op, err)
}

// Content streams the content of an entry of the history: from skip on, at most max bytes
// when max is not negative.
func (e *Engine) Content(ctx context.Context, en gitstore.Entry, skip, max int64, w io.Writer) error {
	_, err := e.store.ReadContent(ctx, en, skip, max, w)
	return err
}

// Status compares the live tree with the newest checkpoint and changes nothing.
func (e *Engine) Status(ctx context.Context) (wire.StatusReply, error) {
	const op = "keeper.Status"
	e.mu.Lock()
	defer e.mu.Unlock()
	cap, err := e.scanner.Capture(ctx, false)
	if err != nil {
		return wire.StatusReply{}, fault.Wrap(op, err)
	}
	reply := wire.StatusReply{Head: e.moves.Head, Tree: e.moves.Tree, Changes: []wire.Change{}, Left: cap.Skipped}
	for _, c := range cap.Changes {
		if c.To.Exists() {
			reply.Bytes += cap.Tracked[c.Path].Stat.Size
		}
	}
	for i, c := range cap.Changes {
		if len(reply.Changes) == gitstore.MaxChanges {
			reply.More = len(cap.Changes) - i
			break
		}
		what := "modified"
		switch {
		case !c.From.Exists():
			what = "added"
		case !c.To.Exists():
			what = "deleted"
		case c.From.Holds() == c.To.Holds():
			what = "mode"
		}
		reply.Changes = append(reply.Changes, wire.Change{Path: wire.Path(c.Path), Op: what})
	}
	for _, p := range cap.Ignored {
		reply.Ignored = append(reply.Ignored, wire.Path(p))
	}
	for _, p := range cap.Nested {
		reply.Repositories = append(reply.Repositories, wire.Path(p))
	}
	slices.Sort(reply.Ignored)
	slices.Sort(reply.Repositories)
	reply.Pending, err = e.moves.Pending(ctx)
	return reply, fault.Wrap(op, err)
}

// Ignored are the directories of the live tree that no checkpoint captures.
func (e *Engine) Ignored(ctx context.Context) (wire.IgnoredReply, error) {
	const op = "keeper.Ignored"
	e.mu.Lock()
	defer e.mu.Unlock()
	now, err := e.scanner.FileClock()
	if err != nil {
		return wire.IgnoredReply{}, fault.Wrap(op, err)
	}
	ignored, err := e.scanner.IgnoredNow(ctx, now)
	reply := wire.IgnoredReply{Ignored: []wire.Path{}}
	for _, p := range slices.Sorted(slices.Values(ignored)) {
		reply.Ignored = append(reply.Ignored, wire.Path(p))
	}
	return reply, fault.Wrap(op, err)
}
