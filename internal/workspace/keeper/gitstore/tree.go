package gitstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Entry is one captured path: its mode and the id of its blob ("" for an empty
// directory). Of a large file, which is kept as chunks, it is the id of their
// manifest: only this says so, never what a blob holds.
type Entry struct {
	Mode    wire.Mode `json:"mode"`
	ID      string    `json:"id,omitempty"`
	Chunked bool      `json:"chunked,omitempty"`
}

// None is the entry of a path that does not exist.
var None Entry

// Exists reports whether there is something at the path.
func (en Entry) Exists() bool { return en.Mode != "" }

// IsRegular reports whether it is a file.
func (en Entry) IsRegular() bool { return en.Mode == wire.ModeFile || en.Mode == wire.ModeExec }

// Tree is everything in a commit, by the paths of the live tree.
type Tree map[string]Entry

// EmptyBlob is the id of the blob without content.
const EmptyBlob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

// ReadTree reads a tree and, if known is set, records that its directories exist.
func (s *Store) ReadTree(ctx context.Context, tree string, known bool) (Tree, error) {
	t := Tree{}
	if known {
		s.known[tree] = true
	}
	err := s.walkTree(ctx, tree, func(name string, it TreeItem) error {
		if it.Mode == modeFolder {
			if known {
				s.known[it.ID] = true
			}
			return nil
		}
		p, en, err := entryOf(tree, name, it)
		if err != nil || p == "" {
			return err
		}
		if _, twice := t[p]; twice && en.Mode != wire.ModeEmptyDir {
			return notOurs(tree, name, "which stands there twice")
		}
		t[p] = en
		return nil
	})
	return t, err
}

// entryOf is the entry that an item of a commit stands for, and its path; "" if that is the
// marker of an empty tree. Items that only a foreign tool can have written (submodules) are
// refused rather than lost.
func entryOf(tree, name string, it TreeItem) (string, Entry, error) {
	switch it.Mode {
	case string(wire.ModeFile), string(wire.ModeExec), string(wire.ModeSymlink):
	default:
		return "", None, notOurs(tree, name, "of mode "+it.Mode)
	}
	p, kind := names.UnescapePath(name)
	if kind == names.PathEmpty {
		return p, Entry{Mode: wire.ModeEmptyDir}, nil
	}
	en := Entry{Mode: wire.Mode(it.Mode), ID: it.ID, Chunked: kind == names.PathChunked}
	if en.Chunked && !en.IsRegular() {
		return "", None, notOurs(tree, name, "which is no large file")
	}
	return p, en, nil
}

func notOurs(tree, name, what string) error {
	return fault.New("keeper.readTree", fault.Invalid, "", fmt.Errorf("tree %s holds %s, %s", tree, wire.Short(name), what))
}

// TreeItem is one entry of a directory being written.
type TreeItem struct {
	Name string // as in the commit
	Mode string
	ID   string
}

// WriteTree writes a tree and those of its directories that are not known to exist, and
// returns its id.
func (s *Store) WriteTree(ctx context.Context, t Tree) (string, error) {
	paths := make([]string, 0, len(t))
	for p := range t {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, ComparePaths)
	b := s.Builder()
	b.tree = t
	root, rest := b.build(paths, "")
	if len(rest) > 0 {
		return "", fault.New("keeper.writeTree", fault.Internal, "", fmt.Errorf("path %q does not fit", wire.Short(rest[0])))
	}
	return root, s.WriteBuilt(ctx, b)
}

// Builder returns a builder for trees that do not exist yet.
func (s *Store) Builder() *Builder { return &Builder{known: s.known} }

// WriteBuilt writes what a builder made.
func (s *Store) WriteBuilt(ctx context.Context, b *Builder) error {
	if b.err != nil {
		return fault.New("keeper.writeTree", fault.Internal, "", b.err)
	}
	ids, err := s.Write(ctx, b.out)
	if err != nil {
		return err
	}
	for _, id := range ids {
		s.known[id] = true
	}
	return nil
}

// Builder makes the objects of trees that are not known to exist.
type Builder struct {
	tree  Tree
	known map[string]bool
	out   []objects.Object
	made  map[string]bool
	err   error
}

// ComparePaths sorts so that a directory's content is contiguous.
func ComparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		ca, cb := a[i], b[i]
		if ca == cb {
			continue
		}
		if ca == '/' {
			return -1
		}
		if cb == '/' {
			return 1
		}
		return int(ca) - int(cb)
	}
	return len(a) - len(b)
}

// build makes the tree of the directory prefix ("" or "a/b/") from the sorted
// paths that begin with it, and returns what follows them.
func (b *Builder) build(paths []string, prefix string) (string, []string) {
	var items []TreeItem
	for len(paths) > 0 && strings.HasPrefix(paths[0], prefix) {
		p := paths[0]
		name, _, sub := strings.Cut(p[len(prefix):], "/")
		if sub {
			var id string
			id, paths = b.build(paths, p[:len(prefix)+len(name)+1])
			items = append(items, DirItem(name, id))
			continue
		}
		paths = paths[1:]
		en := b.tree[p]
		if len(paths) > 0 && strings.HasPrefix(paths[0], p+"/") {
			if en.Mode != wire.ModeEmptyDir {
				b.Clash(p)
			}
			continue // it isn't empty after all
		}
		items = append(items, b.Item(name, en))
	}
	return b.Add(items), paths
}

// Item is one entry as it stands in its directory.
func (b *Builder) Item(name string, en Entry) TreeItem {
	switch {
	case en.Mode == wire.ModeEmptyDir:
		return TreeItem{names.Escape(name, names.Folder), modeFolder, b.Add([]TreeItem{{names.EmptyMarker, string(wire.ModeFile), EmptyBlob}})}
	case en.Chunked:
		return TreeItem{names.EscapeChunked(name), string(en.Mode), en.ID}
	}
	return TreeItem{names.Escape(name, names.KindOf(en.Mode)), string(en.Mode), en.ID}
}

// DirItem is a folder as it stands in the one that holds it.
func DirItem(name, tree string) TreeItem {
	return TreeItem{names.Escape(name, names.Folder), modeFolder, tree}
}

// IsKnown reports whether a tree is there already.
func (b *Builder) IsKnown(tree string) bool { return b.known[tree] }

// Clash notes that a name is both a file's and a folder's.
func (b *Builder) Clash(p string) {
	if b.err == nil {
		b.err = fmt.Errorf("%q is a file and a directory", wire.Short(p))
	}
}

// Add encodes one directory and returns its id.
func (b *Builder) Add(items []TreeItem) string {
	slices.SortFunc(items, compareItems)
	var buf bytes.Buffer
	for _, it := range items {
		raw, err := hex.DecodeString(it.ID)
		if err != nil || len(raw) != 20 || it.Name == "" {
			b.err = fmt.Errorf("entry %q has the id %q", wire.Short(it.Name), wire.Short(it.ID))
			return ""
		}
		buf.WriteString(it.Mode)
		buf.WriteByte(' ')
		buf.WriteString(it.Name)
		buf.WriteByte(0)
		buf.Write(raw)
		if it.Name == names.EmptyMarker && !b.known[EmptyBlob] && !b.made[EmptyBlob] {
			b.emit(objects.Object{Kind: "blob"}, EmptyBlob)
		}
	}
	id := objects.ID("tree", buf.Bytes())
	if !b.known[id] && !b.made[id] {
		b.emit(objects.Object{Kind: "tree", Content: buf.Bytes()}, id)
	}
	return id
}

func (b *Builder) emit(o objects.Object, id string) {
	if b.made == nil {
		b.made = map[string]bool{}
	}
	b.made[id] = true
	b.out = append(b.out, o)
}

// Change is one path that differs between two trees.
type Change struct {
	Path     string
	From, To Entry
}

// DiffTrees lists what differs, sorted by path.
func DiffTrees(from, to Tree) []Change {
	var out []Change
	for p, a := range from {
		if b := to[p]; a != b {
			out = append(out, Change{p, a, b})
		}
	}
	for p, b := range to {
		if _, ok := from[p]; !ok {
			out = append(out, Change{p, None, b})
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return ComparePaths(x.Path, y.Path) })
	return out
}

// Within reports whether p is one of paths or under one; no paths means all.
func Within(p string, paths []string) bool {
	if len(paths) == 0 {
		return true
	}
	for _, q := range paths {
		if q == "." || p == q || strings.HasPrefix(p, q+"/") {
			return true
		}
	}
	return false
}

// commitInfo is what a commit says beside its tree.
type commitInfo struct {
	tree    string
	parents []string
	message string
	when    int64 // Unix seconds
}

const identity = "Choir <choir@computer.invalid>"

// writeCommit writes a commit object; no ref names it yet.
func (s *Store) writeCommit(ctx context.Context, c commitInfo) (string, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.tree)
	for _, p := range c.parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s %d +0000\ncommitter %s %d +0000\n\n%s", identity, c.when, identity, c.when, c.message)
	ids, err := s.Write(ctx, []objects.Object{{Kind: "commit", Content: b.Bytes()}})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// ReplaceTree writes again the directory whose tree is id, if t has it.
func (s *Store) ReplaceTree(t Tree, id string) (bool, error) {
	b := Builder{tree: t, known: map[string]bool{}}
	paths := slices.SortedFunc(maps.Keys(t), ComparePaths)
	if _, rest := b.build(paths, ""); len(rest) > 0 || b.err != nil {
		return false, b.err
	}
	for _, o := range b.out {
		if o.Kind == "tree" && objects.ID("tree", o.Content) == id {
			return true, s.Replace(o, id)
		}
	}
	return false, nil
}
