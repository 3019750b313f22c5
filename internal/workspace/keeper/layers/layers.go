package layers

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Layers are the snapshots of one live tree.
type Layers struct {
	dir   string // directory of the snapshots
	store *gitstore.Store
	put   Put
	crash func(point string) // is told the points at which a test ends the process

	mu     sync.Mutex       // one snapshot at a time; guards what follows
	known  map[string]layer // by name; nil until the directory was read
	newest string           // the top layer of the snapshot that was requested last
}

// Put writes an entry's content to a new file, and restores the content if it is damaged; p
// is the path that it had.
type Put func(ctx context.Context, name string, en gitstore.Entry, p wire.Path, sync bool) error

// Options say what layers are made from.
type Options struct {
	Dir   string // directory of the snapshots
	Store *gitstore.Store
	Put   Put
	Crash func(point string) // is told the points at which a test ends the process
}

// New makes the Layers of a folder. It reads nothing yet.
func New(o Options) *Layers {
	return &Layers{dir: o.Dir, store: o.Store, put: o.Put, crash: o.Crash}
}

// Show returns the layers that show a tree, the topmost first, and makes those that are
// missing.
func (ls *Layers) Show(ctx context.Context, tree string) ([]string, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	chain, err := ls.layersOf(ctx, tree)
	if err != nil {
		return nil, err
	}
	ls.newest = chain[0].Name
	var names []string
	for _, l := range chain {
		names = append(names, l.Name)
	}
	return names, nil
}

// layer is a directory of the snapshots, with the content of its mark.
type layer struct {
	Name  string   `json:"name"`
	Boot  string   `json:"boot"`
	Tree  string   `json:"tree"`            // what it shows with those below it
	Below []string `json:"below,omitempty"` // names, the topmost first; none: it is a whole checkout
	Size  int      `json:"size"`            // how many entries are in it
	Made  int64    `json:"made"`            // Unix nanoseconds, to tell the newest
}

// A new layer absorbs those under it that are not much larger than it has become by then,
// so that a chain stays short and each change is written only a few times.
const (
	growth      = 4 // a layer up to this many times as large is absorbed
	wholeGrowth = 2 // the same for the whole checkout
)

// nameOf is the name of the layer that turns one tree (or none) into another.
func nameOf(from, to string) string {
	if from == "" {
		return to
	}
	sum := sha1.Sum([]byte(from + " " + to))
	return hex.EncodeToString(sum[:])
}

const (
	ending = ".ok"
	part   = ".tmp-"
)

func (ls *Layers) path(name string) string { return filepath.Join(ls.dir, name) }

func (ls *Layers) markFile(name string) string { return ls.path("." + name + ending) }

// all returns the layers on disk, by name. It is called with ls.mu held.
func (ls *Layers) all() (map[string]layer, error) {
	if ls.known != nil {
		return ls.known, nil
	}
	entries, err := os.ReadDir(ls.dir)
	if err != nil {
		return nil, err
	}
	out := map[string]layer{}
	for _, en := range entries {
		if strings.HasPrefix(en.Name(), part) { // left by an engine that was killed
			if err := disk.RemoveTree(ls.path(en.Name())); err != nil {
				return nil, err
			}
			continue
		}
		name, ok := strings.CutSuffix(strings.TrimPrefix(en.Name(), "."), ending)
		if !ok || !isName(name) {
			continue
		}
		raw, err := os.ReadFile(ls.markFile(name))
		if err != nil {
			return nil, err
		}
		var l layer
		if json.Unmarshal(raw, &l) != nil || l.Name != name || len(l.Below) >= wire.MaxLayers {
			continue // written by another version, or damaged: it is made again
		}
		out[name] = l
	}
	ls.known = out
	return out, nil
}

func isName(s string) bool { return len(s) == 40 && wire.IsHex(s) }

// chain returns a layer with those below it, nil if one of them is not valid.
func (ls *Layers) chain(ctx context.Context, top layer) ([]layer, error) {
	out := []layer{top}
	for _, name := range top.Below {
		l, ok := ls.known[name]
		if !ok {
			return nil, nil
		}
		out = append(out, l)
	}
	below := func(i int) string {
		if i+1 < len(out) {
			return out[i+1].Tree
		}
		return ""
	}
	boot, err := disk.BootID()
	if err != nil {
		return nil, err
	}
	for i, l := range out {
		if l.Name != nameOf(below(i), l.Tree) {
			return nil, nil // it was made over another tree than the layer below it shows
		}
		if l.Boot == boot {
			continue
		}
		if ok, err := ls.holds(ctx, l, below(i)); err != nil {
			return nil, err
		} else if !ok { // no box that was opened before this boot is left, so none sees it
			delete(ls.known, l.Name)
			return nil, nil
		}
		l.Boot = boot
		if err := ls.mark(l); err != nil {
			return nil, err
		}
		out[i] = l
	}
	return out, nil
}

func (ls *Layers) mark(l layer) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	file := ls.markFile(l.Name)
	if err := os.WriteFile(file+"~", raw, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+"~", file); err != nil {
		return err
	}
	ls.known[l.Name] = l
	return nil
}

// holds reports whether a layer really turns the tree below it into its own.
func (ls *Layers) holds(ctx context.Context, l layer, from string) (bool, error) {
	steps, err := ls.store.Between(ctx, from, l.Tree)
	if err != nil {
		return false, ctx.Err() //nolint:nilerr // it is made again, and what is damaged is reported then
	}
	dir, err := unix.Open(ls.path(l.Name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil //nolint:nilerr // it is missing, and is made again
	}
	defer unix.Close(dir)
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if ok, err := ls.stepHolds(dir, s); err != nil || !ok {
			return false, nil //nolint:nilerr // it is damaged, and is made again
		}
	}
	return true, nil
}

func (ls *Layers) stepHolds(root int, s gitstore.Step) (bool, error) {
	dir, err := disk.OpenDir(root, wire.ParentDir(s.Path))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	name := filepath.Base(s.Path)
	if s.Entry.Exists() && s.Entry.Mode != wire.ModeEmptyDir {
		got, _, err := ls.store.EntryAt(dir, name, s.Entry)
		return got == s.Entry, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	if s.Entry.Exists() {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
	}
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0, nil
}

// layersOf returns the shortest chain that shows a tree; one is made if there is none.
func (ls *Layers) layersOf(ctx context.Context, tree string) ([]layer, error) {
	all, err := ls.all()
	if err != nil {
		return nil, err
	}
	var best []layer
	for _, l := range all {
		if l.Tree != tree || best != nil && len(l.Below) >= len(best)-1 {
			continue
		}
		chain, err := ls.chain(ctx, l)
		if err != nil {
			return nil, err
		}
		if chain != nil {
			best = chain
		}
	}
	if best != nil {
		return best, nil
	}
	newest, err := ls.newestChain(ctx)
	if err != nil {
		return nil, err
	}
	return ls.addLayer(ctx, tree, newest)
}

// newestChain returns the chain of the snapshot that was requested last, nil if it is not
// valid.
func (ls *Layers) newestChain(ctx context.Context) ([]layer, error) {
	all, err := ls.all()
	if err != nil {
		return nil, err
	}
	if l, ok := all[ls.newest]; ok {
		if chain, err := ls.chain(ctx, l); err != nil || chain != nil {
			return chain, err
		}
	}
	var tops []layer
	for _, l := range all {
		tops = append(tops, l)
	}
	slices.SortFunc(tops, func(a, b layer) int { return int(min(1, max(-1, b.Made-a.Made))) })
	for _, l := range tops {
		if chain, err := ls.chain(ctx, l); err != nil || chain != nil {
			ls.newest = l.Name
			return chain, err
		}
	}
	return nil, nil
}

// addLayer shows a tree by a new layer over a chain, absorbing those layers that are not
// much larger.
func (ls *Layers) addLayer(ctx context.Context, tree string, over []layer) ([]layer, error) {
	var changed []gitstore.Step
	if len(over) > 0 {
		var err error
		if changed, err = ls.store.Between(ctx, over[0].Tree, tree); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			over, changed = nil, nil // the tree of the chain can't be read any more
		}
	}
	return ls.writeLayer(ctx, tree, over, takenIn(over, len(changed)), changed)
}

// takenIn is how many layers of a chain a new layer of a size absorbs.
func takenIn(over []layer, size int) int {
	n := 0
	for ; n < len(over)-1 && (len(over)-n >= wire.MaxLayers || over[n].Size <= growth*size); n++ {
		size += over[n].Size
	}
	if n == len(over)-1 && over[n].Size <= wholeGrowth*size {
		n++
	}
	return n
}

// writeLayer writes a layer that absorbs the first n layers of a chain; changed turns the
// chain's tree into the new one.
func (ls *Layers) writeLayer(ctx context.Context, tree string, over []layer, n int, changed []gitstore.Step) ([]layer, error) {
	boot, err := disk.BootID()
	if err != nil {
		return nil, err
	}
	steps, from, below := changed, "", over[n:]
	if len(below) > 0 {
		from = below[0].Tree
	}
	if n > 0 || len(over) == 0 {
		if steps, err = ls.store.Between(ctx, from, tree); err != nil {
			return nil, err
		}
	}
	l := layer{Name: nameOf(from, tree), Boot: boot, Tree: tree, Size: len(steps), Made: time.Now().UnixNano()}
	for _, b := range below {
		l.Below = append(l.Below, b.Name)
	}
	final, part := ls.path(l.Name), ls.path(part+l.Name)
	// An existing one of this name has no valid mark, so nobody was told of it.
	if err := errors.Join(disk.RemoveTree(part), disk.RemoveIfThere(ls.markFile(l.Name)), disk.RemoveTree(final), os.Mkdir(part, 0o755)); err != nil {
		return nil, err
	}
	b := builder{layers: ls, root: part, dst: -1, differs: map[string]bool{}}
	for _, s := range changed {
		b.differs[s.Path] = true
	}
	if n > 0 { // otherwise all of its content is new
		err = b.open(over)
	}
	if err == nil {
		err = b.build(ctx, steps)
	}
	b.close()
	if err != nil {
		return nil, errors.Join(err, disk.RemoveTree(part))
	}
	if err := os.Rename(part, final); err != nil {
		return nil, err
	}
	ls.crash("snapshot.built")
	if err := ls.mark(l); err != nil {
		return nil, err
	}
	return append([]layer{l}, below...), nil
}

// Squash makes the newest chain as short as possible for what changed since its whole
// layer; it is called when nobody waits.
func (ls *Layers) Squash(ctx context.Context) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	chain, err := ls.newestChain(ctx)
	if err != nil || len(chain) <= 2 {
		return err
	}
	if chain, err = ls.writeLayer(ctx, chain[0].Tree, chain, len(chain)-1, nil); err != nil {
		return err
	}
	ls.newest = chain[0].Name
	return nil
}

// Release removes every layer except those to keep and those of the newest snapshot, on
// which the next one is based.
func (ls *Layers) Release(ctx context.Context, keep []string) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	newest, err := ls.newestChain(ctx)
	if err != nil {
		return err
	}
	stays := map[string]bool{}
	for _, name := range keep {
		stays[name] = true
	}
	for _, l := range newest {
		stays[l.Name] = true
	}
	entries, err := os.ReadDir(ls.dir)
	if err != nil {
		return err
	}
	for _, en := range entries {
		name := strings.TrimPrefix(strings.TrimPrefix(en.Name(), part), ".")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "~"), ending)
		if !isName(name) || stays[name] {
			continue
		}
		delete(ls.known, name)
		if err := errors.Join(disk.RemoveIfThere(ls.markFile(name)), disk.RemoveTree(ls.path(en.Name()))); err != nil {
			return fmt.Errorf("remove layer %s: %w", name, err)
		}
	}
	return nil
}

// builder fills a layer directory by directory, keeping open the directory and those to
// link from: ten thousand links are cheap that way.
type builder struct {
	layers  *Layers
	root    string          // the new layer, under a temporary name
	from    []int           // layers to hard-link from, the topmost first
	differs map[string]bool // paths that differ from these layers
	dir     string          // the directory that is open
	dst     int             // its descriptor in the new layer; -1 while none is open
	src     []int           // its descriptors in the layers to link from
}

func (b *builder) open(layers []layer) error {
	for _, l := range layers {
		fd, err := unix.Open(b.layers.path(l.Name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: l.Name, Err: err}
		}
		b.from = append(b.from, fd)
	}
	return nil
}

func (b *builder) close() {
	b.leave()
	for _, fd := range b.from {
		unix.Close(fd)
	}
}

func (b *builder) leave() {
	for _, fd := range append(b.src, b.dst) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	b.dst, b.src = -1, nil
}

func (b *builder) enter(dir string) (err error) {
	if b.dst >= 0 && b.dir == dir {
		return nil
	}
	b.leave()
	name := filepath.Join(b.root, filepath.FromSlash(dir))
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	if b.dst, err = unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	b.dir = dir
	for _, from := range b.from {
		// In a lower layer a path component may be a link, which is not followed.
		if fd, err := disk.OpenDir(from, dir); err == nil {
			b.src = append(b.src, fd)
		}
	}
	return nil
}

func (b *builder) build(ctx context.Context, steps []gitstore.Step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Entry.Mode == wire.ModeEmptyDir {
			if err := b.enter(s.Path); err != nil {
				return err
			}
			continue
		}
		if err := b.enter(wire.ParentDir(s.Path)); err != nil {
			return err
		}
		if err := b.put(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) put(ctx context.Context, s gitstore.Step) error {
	name := filepath.Base(s.Path)
	if !s.Entry.Exists() {
		if err := unix.Mknodat(b.dst, name, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "mknod", Path: s.Path, Err: err}
		}
		return nil
	}
	if !b.differs[s.Path] && b.link(name) {
		return nil
	}
	return b.layers.put(ctx, filepath.Join(b.root, filepath.FromSlash(s.Path)), s.Entry, wire.Path(s.Path), false)
}

// link links a file from the topmost layer that has it; it reports false if none has, or
// the file has as many links as it may.
func (b *builder) link(name string) bool {
	for _, fd := range b.src {
		if err := unix.Linkat(fd, name, b.dst, name, 0); !errors.Is(err, fs.ErrNotExist) {
			return err == nil
		}
	}
	return false
}
