package wanted

import (
	"context"
	"maps"
	"slices"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Tree is what the live tree is to become, stored as the changes to what was captured of
// it: what stays as it is takes no memory, and is not read.
type Tree struct {
	store   *gitstore.Store
	live    *scan.Index
	changes map[string]gitstore.Change // by path; From is what the live tree has there
}

// New returns a Tree that wants the live tree as it was captured.
func New(store *gitstore.Store, live *scan.Index) *Tree {
	return &Tree{store: store, live: live, changes: map[string]gitstore.Change{}}
}

// at returns what is wanted at a path.
func (w *Tree) at(p string) gitstore.Entry {
	if c, ok := w.changes[p]; ok {
		return c.To
	}
	return w.live.At(p).Entry
}

// set makes an entry, or nothing, wanted at a path.
func (w *Tree) set(p string, en gitstore.Entry) {
	was := w.live.At(p).Entry
	if delete(w.changes, p); en != was {
		w.changes[p] = gitstore.Change{Path: p, From: was, To: en}
	}
}

// List returns the changes, sorted by path.
func (w *Tree) List() []gitstore.Change {
	return slices.SortedFunc(maps.Values(w.changes), func(a, b gitstore.Change) int { return gitstore.ComparePaths(a.Path, b.Path) })
}

// Becomes makes everything at paths and beneath them wanted as another tree has it; no
// paths means all of it. live is the tree of what was captured.
func (w *Tree) Becomes(ctx context.Context, live, target string, paths []wire.Path) error {
	changes, err := w.store.Differences(ctx, live, target, Plain(paths)...)
	for _, c := range changes {
		w.changes[c.Path] = c
	}
	return err
}

// Plain returns paths as the trees have them.
func Plain(paths []wire.Path) []string {
	list := make([]string, len(paths))
	for i, p := range paths {
		list[i] = string(p)
	}
	return list
}

// Only drops all changes that are not at paths or beneath them; no paths means that none is
// dropped.
func (w *Tree) Only(paths []wire.Path) {
	list := Plain(paths)
	maps.DeleteFunc(w.changes, func(p string, _ gitstore.Change) bool { return !gitstore.Within(p, list) })
}

// MakeRoom removes what is in the place of a folder of something new: what is wanted at a
// path takes precedence over what is at the paths above it.
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

// LeaveFiles leaves alone those of paths that are files of the live tree.
func (w *Tree) LeaveFiles(paths []wire.Path) {
	var files []string
	for _, p := range paths {
		if w.live.At(string(p)).IsRegular() {
			files = append(files, string(p))
		}
	}
	w.leave(files)
}

// leave leaves files of the live tree alone, and returns the changes that it dropped: those
// of the files, and those that were in conflict with them.
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

// takenBack is the revert of a commit: yours are the changes from what the commit made to
// what was before it, mine those from what the commit made to the live tree, at the same
// paths.
type takenBack struct{ yours, mine []gitstore.Change }

// Revert makes the live tree wanted without the changes of commits, newest first, except
// those at the paths of but or beneath them. If a path can't be reverted for one of them,
// it is reverted for none and stays as it is.
func (w *Tree) Revert(ctx context.Context, live string, commits []wire.Reverted, but []wire.Path) ([]wire.Conflict, error) {
	var all []takenBack
	stay := Plain(but)
	for _, r := range commits {
		back, err := w.reverted(ctx, live, r, stay)
		if err != nil {
			return nil, err
		}
		all = append(all, back)
	}
	var stays gitstore.Unchanged
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
			continue // a path that conflicts for one commit is reverted for none
		}
		var conflicts []wire.Conflict
		for _, p := range stays.Paths() {
			conflicts = append(conflicts, wire.Conflict{Path: wire.Path(p), Reason: "it was changed since"})
		}
		return conflicts, nil
	}
}

// reverted computes the revert of a commit; it is empty if the commit is not the one that
// is meant.
func (w *Tree) reverted(ctx context.Context, live string, r wire.Reverted, but []string) (back takenBack, err error) {
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
	if len(but) > 0 {
		back.yours = slices.DeleteFunc(back.yours, func(c gitstore.Change) bool { return gitstore.Within(c.Path, but) })
	}
	back.mine, err = w.store.DiffAround(ctx, made.Tree, live, back.yours)
	return back, err
}

// since returns what is wanted as changes of another tree, which the changes mine turn into
// the live tree. Paths that are in neither are the same in all.
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

// Merge merges yours, changes of a base, into what is wanted; mine are the changes of the
// same base to what is wanted, at the paths that matter. It returns the conflicts, whose
// paths stay as they are.
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

// sides returns base, ours and theirs at the paths that either side changed, and at the
// paths above these that are files.
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
			if en := w.at(d); en.Exists() { // it is the same in all three
				base[d], ours[d], theirs[d] = en, en, en
			}
		}
	}
	return base, ours, theirs
}
