package gitstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Commits and trees are read by a helper process of their own, so that nobody who asks
// about them waits for the content of a file on its way to a slow reader. Each is compared
// with its name, and small ones are kept in memory: the content of an id never changes.

const (
	maxStructure    = 1 << 30   // bytes of one commit or tree
	maxRemembered   = 256 << 10 // of one that is remembered
	maxGeneration   = 2 << 20   // of all that came into the memory lately
	maxTreeDepth    = 30_000    // folders within each other
	maxTreeEntries  = 16 << 20  // files and folders of one tree
	maxTreePath     = 128 << 10 // bytes of a path in a tree
	kindCommit      = "commit"
	kindTree        = "tree"
	modeFolder      = "40000"
	modeOfAnyCommit = "160000" // git's entry of a submodule
)

// memory keeps commits and trees: those used lately, and the generation before.
type memory struct {
	mu       sync.Mutex
	new, old map[string]structure
	bytes    int
}

// structure is a commit or a tree as it is stored.
type structure struct {
	kind    string
	content []byte
}

func (m *memory) get(id string) (structure, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.new[id]
	if !ok {
		if o, ok = m.old[id]; ok {
			m.keep(id, o)
		}
	}
	return o, ok
}

func (m *memory) put(id string, o structure) {
	if len(o.content) > maxRemembered {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(id, o)
}

func (m *memory) keep(id string, o structure) {
	size := len(o.content) + 200 // what it takes in memory
	if m.new == nil || m.bytes+size > maxGeneration {
		m.new, m.old, m.bytes = map[string]structure{}, m.new, 0
	}
	if _, there := m.new[id]; !there {
		m.bytes += size
	}
	m.new[id] = o
}

// structure reads a commit or tree. Errors: fault.NotFound, fault.Damaged.
func (s *Store) structure(ctx context.Context, id string) (structure, error) {
	var out structure
	err := s.structures(ctx, []string{id}, func(_ int, o structure) error { out = o; return nil })
	return out, err
}

// structures reads commits and trees, and visits them in order.
func (s *Store) structures(ctx context.Context, ids []string, visit func(i int, o structure) error) error {
	for from := 0; from < len(ids); from += git.MaxAsked {
		some := ids[from:min(from+git.MaxAsked, len(ids))]
		have := make([]structure, len(some))
		var asked []string
		var at []int
		for i, id := range some {
			if o, ok := s.memory.get(id); ok {
				have[i] = o
			} else {
				asked, at = append(asked, id), append(at, i)
			}
		}
		err := s.names.All(ctx, asked, maxStructure, func(i int, kind string, content []byte) error {
			if kind != kindCommit && kind != kindTree {
				return fault.New("keeper.read", fault.Invalid, "", fmt.Errorf("object %s is a %s, and no commit or tree", asked[i], kind))
			}
			if objects.ID(kind, content) != asked[i] {
				return fault.New("keeper.read", fault.Damaged, "", fmt.Errorf("%s %s is other than its name", kind, asked[i]))
			}
			have[at[i]] = structure{kind, content}
			s.memory.put(asked[i], have[at[i]])
			return nil
		})
		if err != nil {
			return err
		}
		for i, o := range have {
			if err := visit(from+i, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// tree reads the entries of one tree.
func (s *Store) tree(ctx context.Context, id string) ([]TreeItem, error) {
	o, err := s.structure(ctx, id)
	if err != nil {
		return nil, err
	}
	return treeItems(id, o)
}

// treeItems parses a tree; from a damaged one it returns the entries before the damage.
func treeItems(id string, o structure) ([]TreeItem, error) {
	if o.kind != kindTree {
		return nil, fault.New("keeper.readTree", fault.Invalid, "", fmt.Errorf("object %s is a %s, and no tree", id, o.kind))
	}
	items := make([]TreeItem, 0, len(o.content)/40)
	for content := o.content; len(content) > 0; {
		meta, rest, ok := bytes.Cut(content, []byte{0})
		mode, name, spaced := strings.Cut(string(meta), " ")
		kind, err := canonicalMode(mode)
		if !ok || !spaced || err != nil || len(rest) < 20 || name == "" || strings.Contains(name, "/") {
			return items, fault.New("keeper.readTree", fault.Damaged, "", fmt.Errorf("tree %s is no list of names", id))
		}
		items = append(items, TreeItem{Name: name, Mode: kind, ID: hex.EncodeToString(rest[:20])})
		content = rest[20:]
	}
	if !slices.IsSortedFunc(items, compareItems) { // only a foreign tool writes such a tree
		slices.SortStableFunc(items, compareItems)
	}
	return items, nil
}

// canonicalMode is the mode as which git treats an entry's.
func canonicalMode(octal string) (string, error) {
	mode, err := strconv.ParseUint(octal, 8, 32)
	switch {
	case err != nil:
		return "", err
	case mode&0o170000 == 0o100000 && mode&0o100 != 0:
		return string(wire.ModeExec), nil
	case mode&0o170000 == 0o100000:
		return string(wire.ModeFile), nil
	case mode&0o170000 == 0o120000:
		return string(wire.ModeSymlink), nil
	case mode&0o170000 == 0o040000:
		return modeFolder, nil
	}
	return modeOfAnyCommit, nil
}

// compareItems is git's order of entries in a tree: a folder's name is compared as if it
// ended in a slash.
func compareItems(x, y TreeItem) int {
	n := min(len(x.Name), len(y.Name))
	if c := strings.Compare(x.Name[:n], y.Name[:n]); c != 0 {
		return c
	}
	next := func(it TreeItem) byte {
		switch {
		case len(it.Name) > n:
			return it.Name[n]
		case it.Mode == modeFolder:
			return '/'
		}
		return 0
	}
	if c := int(next(x)) - int(next(y)); c != 0 {
		return c
	}
	return len(x.Name) - len(y.Name)
}

// walkTree visits everything in a tree, folder by folder, including the folders. Paths are
// those of the commit.
func (s *Store) walkTree(ctx context.Context, tree string, visit func(path string, it TreeItem) error) error {
	type folder struct{ prefix, id string }
	seen := 0
	for level, depth := []folder{{"", tree}}, 0; len(level) > 0; depth++ {
		if depth > maxTreeDepth {
			return errTooMuch(tree)
		}
		ids := make([]string, len(level))
		for i, d := range level {
			ids[i] = d.id
		}
		var next []folder
		err := s.structures(ctx, ids, func(i int, o structure) error {
			items, err := treeItems(ids[i], o)
			if err != nil {
				return err
			}
			if seen += len(items); seen > maxTreeEntries {
				return errTooMuch(tree)
			}
			for _, it := range items {
				p := level[i].prefix + it.Name
				if len(p) > maxTreePath {
					return errTooMuch(tree)
				}
				if err := visit(p, it); err != nil {
					return err
				}
				if it.Mode == modeFolder {
					next = append(next, folder{p + "/", it.ID})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		level = next
	}
	return nil
}

func errTooMuch(tree string) error {
	return fault.New("keeper.readTree", fault.Exhausted, "", fmt.Errorf("tree %s holds more than is read of one", tree))
}

// itemAt is a tree's entry at a path of the commit; false when there is none.
func (s *Store) itemAt(ctx context.Context, tree, p string) (TreeItem, bool, error) {
	for {
		name, rest, deeper := strings.Cut(p, "/")
		items, err := s.tree(ctx, tree)
		if err != nil {
			return TreeItem{}, false, err
		}
		i := slices.IndexFunc(items, func(it TreeItem) bool { return it.Name == name && (!deeper || it.Mode == modeFolder) })
		if i < 0 || !deeper {
			return at(items, i), i >= 0, nil
		}
		tree, p = items[i].ID, rest
	}
}

func at(items []TreeItem, i int) TreeItem {
	if i < 0 {
		return TreeItem{}
	}
	return items[i]
}

// Differ visits the files in which two trees differ, by their paths in commits, reading
// only folders that differ. The mode of a missing file is "". Only what is at one of paths,
// as commits write them, or below is compared; no paths means all.
func (s *Store) Differ(ctx context.Context, a, b string, paths []string, visit func(p string, from, to TreeItem) error) error {
	return (&treeDiff{store: s, ctx: ctx, at: choose(paths), visit: visit}).folder("", a, b, 0, len(paths) == 0)
}

// DifferBeyond is Differ of trees of which beyond may have some that are not stored.
func (s *Store) DifferBeyond(ctx context.Context, a, b string, beyond func(id string) (content []byte, is bool, err error), visit func(p string, from, to TreeItem) error) error {
	return (&treeDiff{store: s, ctx: ctx, beyond: beyond, visit: visit}).folder("", a, b, 0, true)
}

type treeDiff struct {
	store  *Store
	ctx    context.Context
	at     pathSet
	visit  func(p string, from, to TreeItem) error
	met    func(tree string)                                    // nil, or what is told of each folder that was read
	beyond func(id string) (content []byte, is bool, err error) // nil, or what reads trees that are not stored
	seen   int
}

func (w *treeDiff) items(id string) ([]TreeItem, error) {
	if w.beyond != nil {
		if content, is, err := w.beyond(id); is || err != nil {
			if err != nil {
				return nil, err
			}
			return treeItems(id, structure{kindTree, content})
		}
	}
	return w.store.tree(w.ctx, id)
}

// folder compares one folder of both; whole says that all of it is selected.
func (w *treeDiff) folder(prefix, a, b string, depth int, whole bool) error {
	if a == b {
		return nil
	}
	if depth > maxTreeDepth || len(prefix) > maxTreePath {
		return errTooMuch(a + " or " + b)
	}
	lists := [2][]TreeItem{}
	for i, id := range [2]string{a, b} {
		if id == "" {
			continue
		}
		items, err := w.items(id)
		if err != nil {
			return err
		}
		if w.seen += len(items); w.seen > maxTreeEntries {
			return errTooMuch(id)
		}
		lists[i] = items
		if w.met != nil {
			w.met(id)
		}
	}
	from, to := lists[0], lists[1]
	for len(from) > 0 || len(to) > 0 {
		var x, y TreeItem
		switch c := order(from, to); {
		case c < 0:
			x, from = from[0], from[1:]
		case c > 0:
			y, to = to[0], to[1:]
		default:
			x, y, from, to = from[0], to[0], from[1:], to[1:]
		}
		if x.ID == y.ID && x.Mode == y.Mode {
			continue
		}
		if err := w.item(prefix, x, y, depth, whole); err != nil {
			return err
		}
	}
	return nil
}

func order(from, to []TreeItem) int {
	switch {
	case len(from) == 0:
		return 1
	case len(to) == 0:
		return -1
	}
	return compareItems(from[0], to[0])
}

// item compares one name of a folder, or what has taken its place. Names that compare as
// equal are both folders or both not.
func (w *treeDiff) item(prefix string, x, y TreeItem, depth int, whole bool) error {
	p := prefix + x.Name
	folder := x.Mode == modeFolder
	if x.Mode == "" {
		p, folder = prefix+y.Name, y.Mode == modeFolder
	}
	whole = whole || w.at.paths[p]
	if !whole && !(folder && w.at.above[p]) {
		return nil
	}
	if folder {
		return w.folder(p+"/", x.ID, y.ID, depth+1, whole)
	}
	return w.visit(p, x, y)
}

// pathSet is a set of paths, and of all the folders above them.
type pathSet struct{ paths, above map[string]bool }

func choose(paths []string) pathSet {
	c := pathSet{make(map[string]bool, len(paths)), map[string]bool{}}
	for _, p := range paths {
		c.paths[p] = true
		for d := wire.ParentDir(p); d != "." && !c.above[d]; d = wire.ParentDir(d) {
			c.above[d] = true
		}
	}
	return c
}

// rawCommit is a commit as it is stored.
type rawCommit struct {
	tree    string
	parents []string
	when    int64 // when it was committed, in Unix seconds
	message string
}

func (s *Store) rawCommit(ctx context.Context, id string) (rawCommit, error) {
	o, err := s.structure(ctx, id)
	if err == nil && o.kind != kindCommit {
		err = fault.New("keeper.commit", fault.NotFound, "`choir checkpoints` lists what there is.", fmt.Errorf("%s is no checkpoint", wire.Short(id)))
	}
	if err != nil {
		return rawCommit{}, err
	}
	c := rawCommit{}
	c.tree, c.parents = CommitNames(o.content)
	_, message, _ := bytes.Cut(o.content, []byte("\n\n"))
	c.message = string(message)
	if !wire.IsHex(c.tree) || len(c.tree) != 40 {
		return c, fault.New("keeper.commit", fault.Damaged, "", fmt.Errorf("commit %s names no tree", id))
	}
	c.when = CommitTime(o.content)
	return c, nil
}

// CommitTime is when a commit was committed, in Unix seconds; 0 for a foreign one's that
// is no time: git shows such a date as 1970 too.
func CommitTime(content []byte) int64 {
	head, _, _ := bytes.Cut(content, []byte("\n\n"))
	for line := range strings.Lines(string(head)) {
		// committer NAME <ADDRESS> SECONDS ZONE
		if who, ok := strings.CutPrefix(line, "committer "); ok {
			if f := strings.Fields(who[strings.LastIndexByte(who, '>')+1:]); len(f) > 0 {
				if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
					return n
				}
			}
			return 0
		}
	}
	return 0
}

// nameOfFull is NameOf for a full id of a commit or tree, "" when there is none. For other
// kinds of objects ok is false, and git has to resolve them.
func (s *Store) nameOfFull(ctx context.Context, id, kind string) (name string, ok bool, err error) {
	o, err := s.structure(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound):
		return "", true, nil
	case fault.Is(err, fault.Invalid):
		return "", false, nil
	case err != nil:
		return "", true, err
	case o.kind == kind:
		return id, true, nil
	case o.kind == kindCommit:
		c, err := s.rawCommit(ctx, id)
		if err == nil {
			_, err = s.tree(ctx, c.tree)
		}
		if fault.Is(err, fault.NotFound) {
			err = fault.New("keeper.read", fault.Damaged, "", fmt.Errorf("the tree of commit %s: %w", id, err))
		}
		return c.tree, true, err
	}
	return "", true, nil // a tree is not a commit
}
