package wanted

import (
	"context"
	"maps"
	"slices"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Tree is what the live tree is to become, as what is to change of what was captured
// of it: what stays as it is takes no room, and is not read.
type Tree struct {
	store   *gitstore.Store
	live    *scan.Index
	changes map[string]gitstore.Change // by path; From is what live has there
}

// New wants the live tree as it was captured.
func New(store *gitstore.Store, live *scan.Index) *Tree {
	return &Tree{store: store, live: live, changes: map[string]gitstore.Change{}}
}

// at is what is wanted at a path.
func (w *Tree) at(p string) gitstore.Entry {
	if c, ok := w.changes[p]; ok {
		return c.To
	}
	return w.live.At(p).Entry
}

// set wants something at a path, or nothing.
func (w *Tree) set(p string, en gitstore.Entry) {
	was := w.live.At(p).Entry
	if delete(w.changes, p); en != was {
		w.changes[p] = gitstore.Change{Path: p, From: was, To: en}
	}
}

// List are the changes, sorted by path.
func (w *Tree) List() []gitstore.Change {
	return slices.SortedFunc(maps.Values(w.changes), func(a, b gitstore.Change) int { return gitstore.ComparePaths(a.Path, b.Path) })
}

// Becomes wants what another tree has at paths and beneath; no paths means all of it.
// live is the tree of what was captured.
func (w *Tree) Becomes(ctx context.Context, live, target string, paths []wire.Path) error {
	changes, err := w.store.Differences(ctx, live, target, Plain(paths)...)
	for _, c := range changes {
		w.changes[c.Path] = c
	}
	return err
}

// Plain are paths as the trees have them.
func Plain(paths []wire.Path) []string {
	list := make([]string, len(paths))
	for i, p := range paths {
		list[i] = string(p)
	}
	return list
}

// Only has everything but what is at paths and beneath stay as it is; no paths means
// that nothing has to.
func (w *Tree) Only(paths []wire.Path) {
	list := Plain(paths)
	maps.DeleteFunc(w.changes, func(p string, _ gitstore.Change) bool { return !gitstore.Within(p, list) })
}

// MakeRoom takes away what is where the folder of something new is to be: what is
// wanted of a path outranks what is above it.
func (w *Tree) MakeRoom() {
	for _, c := range w.List() {
		if !c.To.Exists() {
			continue
		}
		for d := wire.ParentDir(c.Path); d != "."; d = wire.ParentDir(d) {
			if w.at(d).Exists() {
				w.set(d, gitstore.None)
			}
		}
	}
}

// LeaveFiles has those of paths that are files of the live tree stay as they are.
func (w *Tree) LeaveFiles(paths []wire.Path) {
	var files []string
	for _, p := range paths {
		if w.live.At(string(p)).IsRegular() {
			files = append(files, string(p))
		}
	}
	w.leave(files)
}

// leave has files of the live tree stay as they are, and returns the changes that are
// not wanted any more: theirs, and what would have been in their way.
func (w *Tree) leave(files []string) []gitstore.Change {
	here, above := map[string]bool{}, map[string]bool{}
	for _, p := range files {
		here[p] = true
		for d := wire.ParentDir(p); d != "." && !above[d]; d = wire.ParentDir(d) {
			above[d] = true
		}
	}
	var left []gitstore.Change
	maps.DeleteFunc(w.changes, func(p string, c gitstore.Change) bool {
		clash := here[p] || above[p]
		for d := wire.ParentDir(p); d != "." && !clash; d = wire.ParentDir(d) {
			clash = here[d]
		}
		if clash {
			left = append(left, c)
		}
		return clash
	})
	return left
}

// takenBack is a commit that is taken back: what that changes of what it made, and
// what the live tree has other than it there.
type takenBack struct{ yours, mine []gitstore.Change }

// Revert wants the live tree without what commits changed in it, newest first. What
// can't be taken back of one of them is taken back of none: it stays as it is.
func (w *Tree) Revert(ctx context.Context, live string, commits []wire.Reverted) ([]wire.Conflict, error) {
	var all []takenBack
	for _, r := range commits {
		back, err := w.reverted(ctx, live, r)
		if err != nil {
			return nil, err
		}
		all = append(all, back)
	}
	var stays gitstore.Staying
	for {
		found := false
		clear(w.changes)
		for _, back := range all {
			stay, err := w.Merge(ctx, w.since(back.mine), stays.Without(back.yours))
			if err != nil {
				return nil, err
			}
			for _, c := range stay {
				found = stays.Add(string(c.Path)) || found
			}
		}
		if found {
			continue // what was taken back of these by another commit is not
		}
		var conflicts []wire.Conflict
		for _, p := range stays.Paths() {
			conflicts = append(conflicts, wire.Conflict{Path: wire.Path(p), Reason: "it was changed since"})
		}
		return conflicts, nil
	}
}

// reverted is a commit taken back; nothing when it is not the one meant.
func (w *Tree) reverted(ctx context.Context, live string, r wire.Reverted) (back takenBack, err error) {
	made, err := w.store.Commit(ctx, r.Commit)
	if err != nil || r.Publish != "" && made.Publish != r.Publish {
		return back, err
	}
	before := ""
	if made.Parent != "" {
		parent, err := w.store.Commit(ctx, made.Parent)
		if err != nil {
			return back, err
		}
		before = parent.Tree
	}
	if back.yours, err = w.store.Differences(ctx, made.Tree, before); err != nil {
		return back, err
	}
	back.mine, err = w.store.Around(ctx, made.Tree, live, back.yours)
	return back, err
}

// since is what is wanted as changes of another tree, of which mine makes the live one.
// Where it does not tell, the two are the same, or nobody asks.
func (w *Tree) since(mine []gitstore.Change) []gitstore.Change {
	all := make(map[string]gitstore.Change, len(mine)+len(w.changes))
	for _, c := range mine {
		all[c.Path] = c
	}
	for p, c := range w.changes {
		if was, ok := all[p]; ok {
			c.From = was.From
		}
		all[p] = c
	}
	return slices.Collect(maps.Values(all))
}

// Merge merges changes of a base, yours, into what is wanted, which mine makes of that
// base as far as it has a say, and returns what can't be: that stays as it is.
func (w *Tree) Merge(ctx context.Context, mine, yours []gitstore.Change) ([]wire.Conflict, error) {
	if len(yours) == 0 {
		return nil, nil
	}
	base, ours, theirs := w.sides(mine, yours)
	merged, conflicts, err := w.store.MergeTrees(ctx, base, ours, theirs)
	if err != nil {
		return nil, err
	}
	for _, c := range gitstore.DiffTrees(ours, merged) {
		w.set(c.Path, c.To)
	}
	return conflicts, nil
}

// sides are base, ours and theirs at the paths that either has other than the
// base, and at those that stand in the way of one.
func (w *Tree) sides(mine, yours []gitstore.Change) (base, ours, theirs gitstore.Tree) {
	base, ours, theirs = gitstore.Tree{}, gitstore.Tree{}, gitstore.Tree{}
	put := func(t gitstore.Tree, p string, en gitstore.Entry) {
		if delete(t, p); en.Exists() {
			t[p] = en
		}
	}
	changed := map[string]bool{}
	for _, c := range slices.Concat(mine, yours) {
		changed[c.Path] = true
		for _, t := range []gitstore.Tree{base, ours, theirs} {
			put(t, c.Path, c.From)
		}
	}
	for _, c := range mine {
		put(ours, c.Path, c.To)
	}
	for _, c := range yours {
		put(theirs, c.Path, c.To)
	}
	for _, p := range slices.Collect(maps.Keys(changed)) {
		for d := wire.ParentDir(p); d != "." && !changed[d]; d = wire.ParentDir(d) {
			changed[d] = true
			if en := w.at(d); en.Exists() { // as all three have it
				base[d], ours[d], theirs[d] = en, en, en
			}
		}
	}
	return base, ours, theirs
}
