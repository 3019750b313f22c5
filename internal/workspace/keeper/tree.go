package keeper

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
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

// none is the entry of a path that isn't there.
var none Entry

func (en Entry) exists() bool    { return en.Mode != "" }
func (en Entry) isRegular() bool { return en.Mode == wire.ModeFile || en.Mode == wire.ModeExec }

// Tree is everything a commit holds, by the paths the live tree has.
type Tree map[string]Entry

// emptyBlob is the id of the blob without content.
const emptyBlob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

// readTree loads a tree, and remembers its directories as written when known
// is set. Entries that only a foreign tool can have put there (gitlinks) are
// refused rather than lost.
func (e *Engine) readTree(ctx context.Context, tree string, known bool) (Tree, error) {
	out, err := e.git(ctx, nil, "ls-tree", "-r", "-t", "-z", "--full-tree", tree)
	if err != nil {
		return nil, err
	}
	t := make(Tree, bytes.Count(out, []byte{0}))
	if known {
		e.known[tree] = true
	}
	for line := range bytes.SplitSeq(out, []byte{0}) {
		if len(line) == 0 {
			continue
		}
		mode, id, name, err := parseTreeLine(line)
		if err != nil {
			return nil, err
		}
		switch mode {
		case "040000":
			if known {
				e.known[id] = true
			}
			continue
		case string(wire.ModeFile), string(wire.ModeExec), string(wire.ModeSymlink):
		default:
			return nil, fault.New("keeper.readTree", fault.Invalid, "", fmt.Errorf("tree %s holds %s of mode %s", tree, wire.Short(name), mode))
		}
		p, kind := unescapePath(name)
		if kind == pathEmpty {
			if p != "" {
				t[p] = Entry{Mode: wire.ModeEmptyDir}
			}
			continue
		}
		en := Entry{Mode: wire.Mode(mode), ID: id, Chunked: kind == pathChunked}
		if _, twice := t[p]; twice || en.Chunked && !en.isRegular() {
			return nil, fault.New("keeper.readTree", fault.Invalid, "", fmt.Errorf("tree %s holds %s, which is no large file", tree, wire.Short(name)))
		}
		t[p] = en
	}
	return t, nil
}

// parseTreeLine parses "mode type id\tname".
func parseTreeLine(line []byte) (mode, id, name string, err error) {
	meta, rest, ok := bytes.Cut(line, []byte{'\t'})
	f := strings.Fields(string(meta))
	if !ok || len(f) != 3 {
		return "", "", "", fmt.Errorf("git ls-tree answered %q", wire.Short(string(line)))
	}
	return f[0], f[2], string(rest), nil
}

// treeItem is one entry of a directory being written.
type treeItem struct {
	name string // as in the commit
	mode string
	id   string
}

// writeTree writes a tree and every directory of it that isn't known, and
// returns its id.
func (e *Engine) writeTree(ctx context.Context, t Tree) (string, error) {
	paths := make([]string, 0, len(t))
	for p := range t {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, comparePaths)
	b := treeBuilder{t: t, known: e.known}
	root, rest := b.build(paths, "")
	if len(rest) > 0 {
		return "", fault.New("keeper.writeTree", fault.Internal, "", fmt.Errorf("path %q does not fit", wire.Short(rest[0])))
	}
	return root, e.writeBuilt(ctx, &b)
}

// writeIndex writes the tree that the index stands for: the directories of it
// that changed since they were written.
func (e *Engine) writeIndex(ctx context.Context) (string, error) {
	b := treeBuilder{known: e.known}
	root := e.tracked.root.build(&b)
	return root, e.writeBuilt(ctx, &b)
}

func (e *Engine) writeBuilt(ctx context.Context, b *treeBuilder) error {
	if b.err != nil {
		return fault.New("keeper.writeTree", fault.Internal, "", b.err)
	}
	ids, err := e.writeObjects(ctx, b.out)
	if err != nil {
		return err
	}
	for _, id := range ids {
		e.known[id] = true
	}
	return nil
}

type treeBuilder struct {
	t     Tree
	known map[string]bool
	out   []object
	made  map[string]bool
	err   error
}

// comparePaths sorts so that what is in a directory stands together.
func comparePaths(a, b string) int {
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
func (b *treeBuilder) build(paths []string, prefix string) (string, []string) {
	var items []treeItem
	for len(paths) > 0 && strings.HasPrefix(paths[0], prefix) {
		p := paths[0]
		name, _, sub := strings.Cut(p[len(prefix):], "/")
		if sub {
			var id string
			id, paths = b.build(paths, p[:len(prefix)+len(name)+1])
			items = append(items, treeItem{escapeName(name, nameDir), "40000", id})
			continue
		}
		paths = paths[1:]
		en := b.t[p]
		if len(paths) > 0 && strings.HasPrefix(paths[0], p+"/") {
			if en.Mode != wire.ModeEmptyDir {
				b.clash(p)
			}
			continue // it isn't empty after all
		}
		items = append(items, b.item(name, en))
	}
	return b.add(items), paths
}

// item is one entry as it stands in its directory.
func (b *treeBuilder) item(name string, en Entry) treeItem {
	switch {
	case en.Mode == wire.ModeEmptyDir:
		return treeItem{escapeName(name, nameDir), "40000", b.add([]treeItem{{emptyMarker, string(wire.ModeFile), emptyBlob}})}
	case en.Chunked:
		return treeItem{escapeChunked(name), string(en.Mode), en.ID}
	}
	return treeItem{escapeName(name, nameKindOf(en.Mode)), string(en.Mode), en.ID}
}

func (b *treeBuilder) clash(p string) {
	if b.err == nil {
		b.err = fmt.Errorf("%q is a file and a directory", wire.Short(p))
	}
}

// add encodes one directory and returns its id.
func (b *treeBuilder) add(items []treeItem) string {
	slices.SortFunc(items, func(x, y treeItem) int {
		nx, ny := x.name, y.name
		if x.mode == "40000" {
			nx += "/"
		}
		if y.mode == "40000" {
			ny += "/"
		}
		return strings.Compare(nx, ny)
	})
	var buf bytes.Buffer
	for _, it := range items {
		raw, err := hex.DecodeString(it.id)
		if err != nil || len(raw) != 20 || it.name == "" {
			b.err = fmt.Errorf("entry %q has the id %q", wire.Short(it.name), wire.Short(it.id))
			return ""
		}
		buf.WriteString(it.mode)
		buf.WriteByte(' ')
		buf.WriteString(it.name)
		buf.WriteByte(0)
		buf.Write(raw)
		if it.name == emptyMarker && !b.known[emptyBlob] && !b.made[emptyBlob] {
			b.emit(object{kind: "blob"}, emptyBlob)
		}
	}
	id := objectID("tree", buf.Bytes())
	if !b.known[id] && !b.made[id] {
		b.emit(object{kind: "tree", content: buf.Bytes()}, id)
	}
	return id
}

func (b *treeBuilder) emit(o object, id string) {
	if b.made == nil {
		b.made = map[string]bool{}
	}
	b.made[id] = true
	b.out = append(b.out, o)
}

// change is one path that differs between two trees.
type change struct {
	path     string
	from, to Entry
}

// diffTrees lists what differs, sorted by path.
func diffTrees(from, to Tree) []change {
	var out []change
	for p, a := range from {
		if b := to[p]; a != b {
			out = append(out, change{p, a, b})
		}
	}
	for p, b := range to {
		if _, ok := from[p]; !ok {
			out = append(out, change{p, none, b})
		}
	}
	slices.SortFunc(out, func(x, y change) int { return comparePaths(x.path, y.path) })
	return out
}

// within reports whether p is one of paths or under one; no paths means all.
func within(p string, paths []string) bool {
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
func (e *Engine) writeCommit(ctx context.Context, c commitInfo) (string, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.tree)
	for _, p := range c.parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s %d +0000\ncommitter %s %d +0000\n\n%s", identity, c.when, identity, c.when, c.message)
	ids, err := e.writeObjects(ctx, []object{{kind: "commit", content: b.Bytes()}})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}
