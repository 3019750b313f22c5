package engine

import (
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"context"
	"iter"
	"strings"
)

// index is what HEAD holds, folder by folder, as the live tree is laid out: a look
// at the tree goes along it, and what a commit must write anew is what changed.
type index struct {
	root folder
	n    int // paths
}

// folder is a directory of the index. A path may be a file and a folder for as
// long as one takes the other's place.
type folder struct {
	files map[string]*leaf // files, links and empty directories, by name
	subs  map[string]*folder
	tree  string // its tree in a commit; "" when it changed since that was known
}

// leaf is a captured path. seen is the look at the tree that met it last.
type leaf struct {
	tracked
	seen uint64
}

func newIndex(t gitstore.Tree) *index {
	x := &index{}
	for p, en := range t {
		x.set(p, tracked{Entry: en})
	}
	return x
}

func splitPath(p string) (dir, name string) {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return ".", p
}

// folder returns a directory that holds something captured, or nil.
func (x *index) folder(dir string) *folder {
	at := &x.root
	if dir == "." {
		return at
	}
	for rest := dir; at != nil; {
		name, more, deeper := strings.Cut(rest, "/")
		at = at.subs[name]
		if !deeper {
			return at
		}
		rest = more
	}
	return nil
}

func (f *folder) leaf(name string) *leaf {
	if f == nil {
		return nil
	}
	return f.files[name]
}

func (f *folder) sub(name string) *folder {
	if f == nil {
		return nil
	}
	return f.subs[name]
}

func (x *index) leaf(p string) *leaf {
	dir, name := splitPath(p)
	return x.folder(dir).leaf(name)
}

// at is what was captured of a path; the zero value when nothing was.
func (x *index) at(p string) tracked {
	if x == nil { // before anything could be read
		return tracked{}
	}
	if l := x.leaf(p); l != nil {
		return l.tracked
	}
	return tracked{}
}

// set makes p what t says. A new state of the same content changes no tree.
func (x *index) set(p string, t tracked) {
	if l := x.leaf(p); l != nil && l.Entry == t.Entry {
		l.tracked = t
		return
	}
	dir, name := splitPath(p)
	at := &x.root
	at.tree = ""
	if dir != "." {
		for part := range strings.SplitSeq(dir, "/") {
			next := at.subs[part]
			if next == nil {
				if at.subs == nil {
					at.subs = map[string]*folder{}
				}
				next = &folder{}
				at.subs[part] = next
			}
			next.tree = ""
			at = next
		}
	}
	if l := at.files[name]; l != nil {
		l.tracked = t
		return
	}
	if at.files == nil {
		at.files = map[string]*leaf{}
	}
	at.files[name] = &leaf{tracked: t}
	x.n++
}

// delete forgets a path, and the folders that held nothing else.
func (x *index) delete(p string) {
	way := []*folder{&x.root}
	dir, name := splitPath(p)
	var parts []string
	if dir != "." {
		parts = strings.Split(dir, "/")
	}
	for _, part := range parts {
		next := way[len(way)-1].subs[part]
		if next == nil {
			return
		}
		way = append(way, next)
	}
	last := way[len(way)-1]
	if last.files[name] == nil {
		return
	}
	delete(last.files, name)
	x.n--
	for i := len(way) - 1; i >= 0; i-- {
		way[i].tree = ""
		if i > 0 && len(way[i].files) == 0 && len(way[i].subs) == 0 {
			delete(way[i-1].subs, parts[i-1])
		}
	}
}

// all are the captured paths, in no order. They must not change meanwhile.
func (x *index) all() iter.Seq2[string, *leaf] {
	return func(yield func(string, *leaf) bool) {
		if x != nil {
			x.root.each(".", yield)
		}
	}
}

func (f *folder) each(dir string, yield func(string, *leaf) bool) bool {
	for name, l := range f.files {
		if !yield(wire.JoinPath(dir, name), l) {
			return false
		}
	}
	for name, sub := range f.subs {
		if !sub.each(wire.JoinPath(dir, name), yield) {
			return false
		}
	}
	return true
}

// entries is the index as a tree.
func (x *index) entries() gitstore.Tree {
	if x == nil {
		return gitstore.Tree{}
	}
	t := make(gitstore.Tree, x.n)
	for p, l := range x.all() {
		t[p] = l.Entry
	}
	return t
}

// take makes the index what a capture saw, and returns what undoes that: HEAD
// does not hold it before there is a commit.
func (x *index) take(cap *capture) (undo func()) {
	old := make(map[string]tracked, len(cap.tracked)+len(cap.gone))
	for p := range cap.tracked {
		old[p] = x.at(p)
	}
	for _, p := range cap.gone {
		old[p] = x.at(p)
	}
	for p, t := range cap.tracked {
		x.set(p, t)
	}
	for _, p := range cap.gone {
		x.delete(p)
	}
	return func() {
		for p, t := range old {
			if t.Exists() {
				x.set(p, t)
			} else {
				x.delete(p)
			}
		}
	}
}

// build makes the tree of a folder, and of those in it that changed.
func (f *folder) build(b *gitstore.Builder) string {
	if f.tree != "" && b.IsKnown(f.tree) {
		return f.tree
	}
	items := make([]gitstore.TreeItem, 0, len(f.files)+len(f.subs))
	for name, sub := range f.subs {
		items = append(items, gitstore.DirItem(name, sub.build(b)))
	}
	for name, l := range f.files {
		if f.subs[name] == nil {
			items = append(items, b.Item(name, l.Entry))
		} else if l.Mode != wire.ModeEmptyDir {
			b.Clash(name)
		}
	}
	f.tree = b.Add(items)
	return f.tree
}

// write writes the tree that the index stands for: the directories of it that
// changed since they were written.
func (x *index) write(ctx context.Context, s *gitstore.Store) (string, error) {
	b := s.Builder()
	root := x.root.build(b)
	return root, s.WriteBuilt(ctx, b)
}
