package gitstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Bounds of what PlainFiles reads; beyond them it says that it does not know.
const (
	plainTreeBytes = 256 << 10
	plainTrees     = 200
)

// PlainFiles says which of paths are files in a commit. plain is false when that does
// not say enough: one of names is in a path's folder or above it, a path is something
// else than a file, or too much would have to be read. A path that ends in a slash may be
// a folder, which is not a file.
func (s *Store) PlainFiles(ctx context.Context, commit string, paths, names []string) (there []bool, plain bool, err error) {
	var raw bytes.Buffer
	kind, size, err := s.reads.Read(ctx, commit, plainTreeBytes, &raw)
	if err != nil {
		return nil, false, fault.Wrap("keeper.Contains", err)
	}
	line, _, _ := strings.Cut(raw.String(), "\n")
	root, ok := strings.CutPrefix(line, "tree ")
	if kind != "commit" || size > plainTreeBytes || !ok || !wire.IsHex(root) {
		return nil, false, fault.New("keeper.Contains", fault.Invalid, "", fmt.Errorf("%s is no commit", wire.Short(commit)))
	}
	b := folderCache{store: s, names: names, seen: map[string]map[string]TreeItem{}, plain: true}
	there = make([]bool, len(paths))
	for i, p := range paths {
		if there[i], err = b.file(ctx, root, p); err != nil || !b.plain {
			return nil, false, fault.Wrap("keeper.Contains", err)
		}
	}
	return there, true, nil
}

// folderCache holds the folders of a commit that were read, so that each is read once.
type folderCache struct {
	store *Store
	names []string
	seen  map[string]map[string]TreeItem
	plain bool
}

// file says whether a path is a file below a tree.
func (b *folderCache) file(ctx context.Context, tree, p string) (bool, error) {
	p, mayBeFolder := strings.CutSuffix(p, "/")
	for {
		items, err := b.folder(ctx, tree)
		if err != nil || !b.plain {
			return false, err
		}
		name, rest, deeper := strings.Cut(p, "/")
		item, ok := items[name]
		isTree := item.Mode == "40000"
		switch {
		case !ok, !deeper && isTree && mayBeFolder:
			return false, nil
		case deeper != isTree, !deeper && item.Mode != string(wire.ModeFile) && item.Mode != string(wire.ModeExec):
			b.plain = false
			return false, nil
		case !deeper:
			return true, nil
		}
		tree, p = item.ID, rest
	}
}

// folder reads a tree, once.
func (b *folderCache) folder(ctx context.Context, id string) (map[string]TreeItem, error) {
	if items, ok := b.seen[id]; ok {
		return items, nil
	}
	if len(b.seen) == plainTrees {
		b.plain = false
		return nil, nil
	}
	var raw bytes.Buffer
	kind, size, err := b.store.reads.Read(ctx, id, plainTreeBytes, &raw)
	if err != nil {
		return nil, err
	}
	if size > plainTreeBytes {
		b.plain = false
		return nil, nil
	}
	items := map[string]TreeItem{}
	for rest := raw.Bytes(); len(rest) > 0; {
		head, tail, ok := bytes.Cut(rest, []byte{0})
		mode, name, named := strings.Cut(string(head), " ")
		if kind != "tree" || !ok || !named || len(tail) < 20 {
			return nil, fault.New("", fault.Damaged, "", fmt.Errorf("object %s is no tree", id))
		}
		name, _ = names.UnescapeFile(name)
		if slices.Contains(b.names, name) {
			b.plain = false
		}
		items[name] = TreeItem{Name: name, Mode: mode, ID: hex.EncodeToString(tail[:20])}
		rest = tail[20:]
	}
	b.seen[id] = items
	return items, nil
}
