package scan

import (
	"context"
	"iter"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Index is the content of HEAD, folder by folder, in the layout of the live tree: a scan
// compares the tree with it, and only what changed in it has to be written for a commit.
type Index struct {
	root    Folder
	Count   int             // paths
	changed map[string]bool // those that got another content, or none, since the last scan
}

// Folder is a directory of the index. A path may be a file and a folder while one replaces
// the other.
type Folder struct {
	files map[string]*Leaf // files, links and empty directories, by name
	subs  map[string]*Folder
	tree  string // its tree in a commit; "" when it changed since that was known
}

// Leaf is a captured path. seen is the number of the last scan that met it.
type Leaf struct {
	Tracked
	seen uint64
}

// NewIndex is the index of a tree of which no file has been examined yet.
func NewIndex(t gitstore.Tree) *Index {
	x := &Index{}
	for p, en := range t {
		x.Set(p, Tracked{Entry: en})
	}
	x.changed = nil
	return x
}

func splitPath(p string) (dir, name string) {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return ".", p
}

// Folder returns a directory that holds something captured, or nil.
func (x *Index) Folder(dir string) *Folder {
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

func (f *Folder) leaf(name string) *Leaf {
	if f == nil {
		return nil
	}
	return f.files[name]
}

func (f *Folder) sub(name string) *Folder {
	if f == nil {
		return nil
	}
	return f.subs[name]
}

// Leaf is the captured path p, nil when there is none.
func (x *Index) Leaf(p string) *Leaf {
	dir, name := splitPath(p)
	return x.Folder(dir).leaf(name)
}

// At is what was captured of a path; the zero value if nothing was.
func (x *Index) At(p string) Tracked {
	if x == nil { // before anything could be read
		return Tracked{}
	}
	if l := x.Leaf(p); l != nil {
		return l.Tracked
	}
	return Tracked{}
}

// Set records t for p. A new state with the same content changes no tree.
func (x *Index) Set(p string, t Tracked) {
	if l := x.Leaf(p); l != nil && l.Entry == t.Entry {
		l.Tracked = t
		return
	}
	x.note(p)
	dir, name := splitPath(p)
	at := &x.root
	at.tree = ""
	if dir != "." {
		for part := range strings.SplitSeq(dir, "/") {
			next := at.subs[part]
			if next == nil {
				if at.subs == nil {
					at.subs = map[string]*Folder{}
				}
				next = &Folder{}
				at.subs[part] = next
			}
			next.tree = ""
			at = next
		}
	}
	if l := at.files[name]; l != nil {
		l.Tracked = t
		return
	}
	if at.files == nil {
		at.files = map[string]*Leaf{}
	}
	at.files[name] = &Leaf{Tracked: t}
	x.Count++
}

func (x *Index) note(p string) {
	if x.changed == nil {
		x.changed = map[string]bool{}
	}
	x.changed[p] = true
}

// Delete removes a path, and the folders that contained nothing else.
func (x *Index) Delete(p string) {
	way := []*Folder{&x.root}
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
	x.note(p)
	delete(last.files, name)
	x.Count--
	for i := len(way) - 1; i >= 0; i-- {
		way[i].tree = ""
		if i > 0 && len(way[i].files) == 0 && len(way[i].subs) == 0 {
			delete(way[i-1].subs, parts[i-1])
		}
	}
}

// All yields the captured paths, in no order. They must not change meanwhile.
func (x *Index) All() iter.Seq2[string, *Leaf] {
	return func(yield func(string, *Leaf) bool) {
		if x != nil {
			x.root.Each(".", yield)
		}
	}
}

// Each visits every captured path in a folder and below it, until visit says no.
func (f *Folder) Each(dir string, yield func(string, *Leaf) bool) bool {
	for name, l := range f.files {
		if !yield(wire.JoinPath(dir, name), l) {
			return false
		}
	}
	for name, sub := range f.subs {
		if !sub.Each(wire.JoinPath(dir, name), yield) {
			return false
		}
	}
	return true
}

// Entries is the index as a tree.
func (x *Index) Entries() gitstore.Tree {
	if x == nil {
		return gitstore.Tree{}
	}
	t := make(gitstore.Tree, x.Count)
	for p, l := range x.All() {
		t[p] = l.Entry
	}
	return t
}

// Take records in the index what a capture saw, and returns a function that undoes it: HEAD
// does not contain it before there is a commit.
func (x *Index) Take(cap *Capture) (undo func()) {
	old := make(map[string]Tracked, len(cap.Tracked)+len(cap.Gone))
	for p := range cap.Tracked {
		old[p] = x.At(p)
	}
	for _, p := range cap.Gone {
		old[p] = x.At(p)
	}
	for p, t := range cap.Tracked {
		x.Set(p, t)
	}
	for _, p := range cap.Gone {
		x.Delete(p)
	}
	return func() {
		for p, t := range old {
			if t.Exists() {
				x.Set(p, t)
			} else {
				x.Delete(p)
			}
		}
	}
}

// build makes the tree of a folder, and of those in it that changed.
func (f *Folder) build(b *gitstore.Builder) string {
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

// Write writes the index as a tree: those directories that changed since they were last
// written.
func (x *Index) Write(ctx context.Context, s *gitstore.Store) (string, error) {
	b := s.Builder()
	root := x.root.build(b)
	return root, s.WriteBuilt(ctx, b)
}
