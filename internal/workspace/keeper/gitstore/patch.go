package gitstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A task changes little, while its tree may be large. So two trees are compared, and one is
// made from another, by reading only the folders that differ.

// Differences lists what DiffTrees lists for two trees ("" for none), sorted by path,
// without reading what they have in common. Only what is at one of paths or beneath is
// compared; no paths means all. Calls must not overlap with writes of objects.
func (s *Store) Differences(ctx context.Context, from, to string, paths ...string) ([]Change, error) {
	found := map[string]Change{}
	w := treeDiff{store: s, ctx: ctx, met: func(tree string) { s.known[tree] = true }}
	w.visit = func(name string, x, y TreeItem) error {
		// A path may have different names in the two trees.
		if x.Mode != "" {
			p, en, err := entryOf(from, name, x)
			if err != nil {
				return err
			}
			found[p] = Change{p, en, found[p].To}
		}
		if y.Mode != "" {
			p, en, err := entryOf(to, name, y)
			if err != nil {
				return err
			}
			found[p] = Change{p, found[p].From, en}
		}
		return nil
	}
	whole := len(paths) == 0 || slices.Contains(paths, ".")
	if !whole {
		var ways []string
		for _, p := range paths {
			ways = append(ways, names.Ways(p)...)
		}
		w.at = choose(ways)
	}
	if err := w.folder("", from, to, 0, whole); err != nil {
		return nil, err
	}
	delete(found, "") // the marker of an empty tree
	out := make([]Change, 0, len(found))
	for _, c := range found {
		if c.From != c.To {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return ComparePaths(x.Path, y.Path) })
	return out, nil
}

// DiffAround lists the differences between base and ours that matter for applying changes,
// another side's, to ours: those at their paths and beneath, and those in the nested
// repositories that contain them, which are merged whole or not at all.
func (s *Store) DiffAround(ctx context.Context, base, ours string, changes []Change) ([]Change, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	repositories := map[string]bool{}
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.Path)
		if git, ok := nested.In(c.Path); ok && !repositories[git] {
			repositories[git] = true
			paths = append(paths, git)
		}
	}
	return s.Differences(ctx, base, ours, paths...)
}

// Patch writes the tree that results from applying changes to a tree, and returns its id.
// The changes must say correctly what the tree has at their paths.
func (s *Store) Patch(ctx context.Context, tree string, changes []Change) (string, error) {
	if len(changes) == 0 {
		return tree, nil
	}
	changes = slices.SortedFunc(slices.Values(changes), func(x, y Change) int { return ComparePaths(x.Path, y.Path) })
	p := patcher{store: s, ctx: ctx, builder: s.Builder()}
	id, err := p.folder(tree, "", changes)
	if err != nil {
		return "", fault.Wrap("keeper.patch", err)
	}
	if id == "" {
		id = p.builder.Add(nil)
	}
	return id, s.WriteBuilt(ctx, p.builder)
}

type patcher struct {
	store   *Store
	ctx     context.Context
	builder *Builder
}

// named is an entry of a folder with its name in the live tree.
type named struct {
	file, dir *TreeItem
}

// folder applies the changes beneath prefix to a folder ("" for none), and returns its
// tree, "" when nothing is left in it.
func (p *patcher) folder(tree, prefix string, changes []Change) (string, error) {
	have, err := p.read(tree)
	if err != nil {
		return "", err
	}
	for len(changes) > 0 {
		name, _, deeper := strings.Cut(changes[0].Path[len(prefix):], "/")
		n := 1
		for n < len(changes) && strings.HasPrefix(changes[n].Path, prefix+name+"/") {
			n++
		}
		here := changes[:n]
		changes = changes[n:]
		e := have[name]
		if e == nil {
			e = &named{}
			have[name] = e
		}
		mark := false // whether it has to become an empty folder
		if !deeper {
			c := here[0]
			here = here[1:]
			if c.From.Exists() && c.From.Mode != wire.ModeEmptyDir || c.To.Exists() && c.To.Mode != wire.ModeEmptyDir {
				e.file = nil
			}
			mark = c.To.Mode == wire.ModeEmptyDir
			if c.To.Exists() && !mark {
				it := p.builder.Item(name, c.To)
				e.file = &it
			}
			if c.From.Mode == wire.ModeEmptyDir && len(here) == 0 {
				e.dir = nil
			}
		}
		if err := p.below(e, prefix+name+"/", here); err != nil {
			return "", err
		}
		if mark && e.dir == nil {
			it := p.builder.Item(name, Entry{Mode: wire.ModeEmptyDir})
			e.dir = &it
		}
	}
	items := make([]TreeItem, 0, len(have))
	for name, e := range have {
		if e.file != nil && e.dir != nil {
			return "", fault.New("", fault.Internal, "", fmt.Errorf("%q is a file and a directory", wire.Short(prefix+name)))
		}
		for _, it := range []*TreeItem{e.file, e.dir} {
			if it != nil {
				items = append(items, *it)
			}
		}
	}
	if len(items) == 0 {
		return "", nil
	}
	return p.builder.Add(items), nil
}

// below applies the changes in the folder of an entry.
func (p *patcher) below(e *named, prefix string, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	was, name := "", prefix[strings.LastIndexByte(prefix[:len(prefix)-1], '/')+1:len(prefix)-1]
	if e.dir != nil {
		was = e.dir.ID
	}
	id, err := p.folder(was, prefix, changes)
	if err != nil {
		return err
	}
	e.dir = nil
	if id != "" {
		it := DirItem(name, id)
		e.dir = &it
	}
	return nil
}

// read reads a folder. The marker of an empty one is left out.
func (p *patcher) read(tree string) (map[string]*named, error) {
	if tree == "" {
		return map[string]*named{}, nil
	}
	items, err := p.store.tree(p.ctx, tree)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*named, len(items))
	for _, it := range items {
		if it.Mode == modeFolder {
			out[names.Unescape(it.Name)] = &named{dir: &it}
			continue
		}
		name, en, err := entryOf(tree, it.Name, it)
		if err != nil {
			return nil, err
		}
		if en.Mode != wire.ModeEmptyDir {
			out[name] = &named{file: &it}
		}
	}
	return out, nil
}

// Lazy is a tree of which only the folders that are asked for are read. What can't be read
// counts as missing, and Err says so.
type Lazy struct {
	comparer comparer
	folders  map[string]map[string]child
	root     string
	err      error
}

// Lazy returns a tree that is read on demand; "" for an empty one.
func (s *Store) Lazy(ctx context.Context, tree string) *Lazy {
	return &Lazy{comparer: comparer{store: s, ctx: ctx}, folders: map[string]map[string]child{}, root: tree}
}

// Err is why something could not be read.
func (l *Lazy) Err() error { return l.err }

// folder is the content of a folder, nil when there is none.
func (l *Lazy) folder(p string) map[string]child {
	if f, ok := l.folders[p]; ok {
		return f
	}
	id := l.root
	if p != "." {
		id = l.folder(wire.ParentDir(p))[path.Base(p)].dir
	}
	f, err := l.comparer.read(id)
	if err != nil {
		l.err = errors.Join(l.err, err)
	}
	l.folders[p] = f
	return f
}

// At is the tree's entry at a path; None for a folder that is not empty.
func (l *Lazy) At(p string) Entry {
	n, ok := l.folder(wire.ParentDir(p))[path.Base(p)]
	switch {
	case !ok:
		return None
	case n.dir == "":
		return n.entry
	case len(l.folder(p)) == 0 && l.err == nil:
		return Entry{Mode: wire.ModeEmptyDir}
	}
	return None
}

// Folder reports whether the tree has something beneath a path.
func (l *Lazy) Folder(p string) bool { return len(l.folder(p)) > 0 }

// Each visits every path beneath a folder until visit says no.
func (l *Lazy) Each(p string, visit func(q string) bool) bool {
	for name, n := range l.folder(p) {
		q := wire.JoinPath(p, name)
		if n.dir != "" && l.Folder(q) {
			if !l.Each(q, visit) {
				return false
			}
		} else if !visit(q) {
			return false
		}
	}
	return true
}
