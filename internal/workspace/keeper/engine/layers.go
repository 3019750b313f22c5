package engine

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
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A snapshot is an immutable checkout that boxes see through an overlay. It is a
// chain of layers: a whole checkout, and over it what changed since, each as
// overlayfs keeps it: files, links and directories that are new or other, and a
// whiteout (a character device 0/0) for what is gone. So a snapshot costs what
// changed since the one before it. What two layers have in common is hard-linked
// between them, never with the live tree.
//
// A layer never changes once it has its name, and stays as long as the host names
// it. Layers can be made again at any time, so nothing is synced; instead a
// layer's mark names the boot of the machine that wrote it, and after another
// boot it is compared with its trees before it is trusted.

// layer is a directory of the snapshots, and its mark.
type layer struct {
	Name  string   `json:"name"`
	Boot  string   `json:"boot"`
	Tree  string   `json:"tree"`            // what it shows with those below it
	Below []string `json:"below,omitempty"` // names, the topmost first; none: it is whole
	Size  int      `json:"size"`            // how much is in it
	Made  int64    `json:"made"`            // Unix nanoseconds, to tell the newest
}

// A new layer takes in those under it that are not much larger than it has become
// by then: so a chain stays short, and over time each change is written a few times.
const (
	layerGrowth = 4 // a layer up to so many times as large is taken in
	wholeGrowth = 2 // and so the whole one
)

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// layerName is the name of what makes one tree of another, or of none.
func layerName(from, to string) string {
	if from == "" {
		return to
	}
	sum := sha1.Sum([]byte(from + " " + to))
	return hex.EncodeToString(sum[:])
}

const (
	layerMark = ".ok"
	layerPart = ".tmp-"
)

func (e *Engine) layerDir(name string) string { return filepath.Join(e.opts.Snapshots, name) }

func (e *Engine) layerMark(name string) string { return e.layerDir("." + name + layerMark) }

// layers are those that are there, by name. It is called with snapMu held.
func (e *Engine) layers() (map[string]layer, error) {
	if e.layered != nil {
		return e.layered, nil
	}
	entries, err := os.ReadDir(e.opts.Snapshots)
	if err != nil {
		return nil, err
	}
	out := map[string]layer{}
	for _, en := range entries {
		if strings.HasPrefix(en.Name(), layerPart) { // of an engine that died
			if err := disk.RemoveTree(e.layerDir(en.Name())); err != nil {
				return nil, err
			}
			continue
		}
		name, ok := strings.CutSuffix(strings.TrimPrefix(en.Name(), "."), layerMark)
		if !ok || !isLayerName(name) {
			continue
		}
		raw, err := os.ReadFile(e.layerMark(name))
		if err != nil {
			return nil, err
		}
		var l layer
		if json.Unmarshal(raw, &l) != nil || l.Name != name || len(l.Below) >= wire.MaxLayers {
			continue // another version's, or torn: it is made again
		}
		out[name] = l
	}
	e.layered = out
	return out, nil
}

func isLayerName(s string) bool { return len(s) == 40 && wire.IsHex(s) }

// chain is a layer with those below it, nil when one of them is not whole.
func (e *Engine) chain(ctx context.Context, top layer) ([]layer, error) {
	out := []layer{top}
	for _, name := range top.Below {
		l, ok := e.layered[name]
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
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	for i, l := range out {
		if l.Name != layerName(below(i), l.Tree) {
			return nil, nil // it is of another tree than the one below it shows
		}
		if l.Boot == boot {
			continue
		}
		if ok, err := e.layerHolds(ctx, l, below(i)); err != nil {
			return nil, err
		} else if !ok { // no box of before is left that could see it
			delete(e.layered, l.Name)
			return nil, nil
		}
		l.Boot = boot
		if err := e.markLayer(l); err != nil {
			return nil, err
		}
		out[i] = l
	}
	return out, nil
}

func (e *Engine) markLayer(l layer) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	mark := e.layerMark(l.Name)
	if err := os.WriteFile(mark+"~", raw, 0o644); err != nil {
		return err
	}
	if err := os.Rename(mark+"~", mark); err != nil {
		return err
	}
	e.layered[l.Name] = l
	return nil
}

// layerHolds reports whether a layer is what makes its tree of the one below it.
func (e *Engine) layerHolds(ctx context.Context, l layer, from string) (bool, error) {
	steps, err := e.store.Between(ctx, from, l.Tree)
	if err != nil {
		return false, ctx.Err() //nolint:nilerr // it is made again, where what is damaged is told
	}
	dir, err := unix.Open(e.layerDir(l.Name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil //nolint:nilerr // not there: it is built
	}
	defer unix.Close(dir)
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if ok, err := e.stepHolds(dir, s); err != nil || !ok {
			return false, nil //nolint:nilerr // damaged: it is built anew
		}
	}
	return true, nil
}

func (e *Engine) stepHolds(root int, s gitstore.Step) (bool, error) {
	dir, err := disk.OpenDir(root, wire.ParentDir(s.Path))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	name := filepath.Base(s.Path)
	if s.Entry.Exists() && s.Entry.Mode != wire.ModeEmptyDir {
		got, _, err := e.store.EntryAt(dir, name, s.Entry)
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

// Snapshot makes sure that a commit is checked out, and names its layers.
func (e *Engine) Snapshot(ctx context.Context, commit string) (wire.SnapshotReply, error) {
	const op = "keeper.Snapshot"
	e.snapMu.Lock()
	defer e.snapMu.Unlock()
	id, err := e.store.Resolve(ctx, commit)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	tree, err := e.treeish(ctx, id, "HEAD")
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	chain, err := e.layersOf(ctx, tree)
	if err != nil {
		return wire.SnapshotReply{}, fault.Wrap(op, err)
	}
	e.newest = chain[0].Name
	reply := wire.SnapshotReply{Commit: id, Tree: tree}
	for _, l := range chain {
		reply.Layers = append(reply.Layers, l.Name)
	}
	return reply, nil
}

// layersOf is the shortest chain that shows a tree; one is made if there is none.
func (e *Engine) layersOf(ctx context.Context, tree string) ([]layer, error) {
	all, err := e.layers()
	if err != nil {
		return nil, err
	}
	var best []layer
	for _, l := range all {
		if l.Tree != tree || best != nil && len(l.Below) >= len(best)-1 {
			continue
		}
		chain, err := e.chain(ctx, l)
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
	newest, err := e.newestChain(ctx)
	if err != nil {
		return nil, err
	}
	return e.addLayer(ctx, tree, newest)
}

// newestChain is the chain of the snapshot that was asked for last, nil when none
// is whole.
func (e *Engine) newestChain(ctx context.Context) ([]layer, error) {
	all, err := e.layers()
	if err != nil {
		return nil, err
	}
	if l, ok := all[e.newest]; ok {
		if chain, err := e.chain(ctx, l); err != nil || chain != nil {
			return chain, err
		}
	}
	var tops []layer
	for _, l := range all {
		tops = append(tops, l)
	}
	slices.SortFunc(tops, func(a, b layer) int { return int(min(1, max(-1, b.Made-a.Made))) })
	for _, l := range tops {
		if chain, err := e.chain(ctx, l); err != nil || chain != nil {
			e.newest = l.Name
			return chain, err
		}
	}
	return nil, nil
}

// addLayer shows a tree by a new layer over a chain, in which it takes in those
// layers that are not much larger.
func (e *Engine) addLayer(ctx context.Context, tree string, over []layer) ([]layer, error) {
	var changed []gitstore.Step
	if len(over) > 0 {
		var err error
		if changed, err = e.store.Between(ctx, over[0].Tree, tree); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			over, changed = nil, nil // what the other one was made of can't be read any more
		}
	}
	return e.writeLayer(ctx, tree, over, takenIn(over, len(changed)), changed)
}

// takenIn says how many layers of a chain a new one of a size takes in.
func takenIn(over []layer, size int) int {
	n := 0
	for ; n < len(over)-1 && (len(over)-n >= wire.MaxLayers || over[n].Size <= layerGrowth*size); n++ {
		size += over[n].Size
	}
	if n == len(over)-1 && over[n].Size <= wholeGrowth*size {
		n++
	}
	return n
}

// writeLayer writes a layer that takes in the first n layers of a chain; changed
// is what makes the tree of the chain's.
func (e *Engine) writeLayer(ctx context.Context, tree string, over []layer, n int, changed []gitstore.Step) ([]layer, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	steps, from, below := changed, "", over[n:]
	if len(below) > 0 {
		from = below[0].Tree
	}
	if n > 0 || len(over) == 0 {
		if steps, err = e.store.Between(ctx, from, tree); err != nil {
			return nil, err
		}
	}
	l := layer{Name: layerName(from, tree), Boot: boot, Tree: tree, Size: len(steps), Made: time.Now().UnixNano()}
	for _, b := range below {
		l.Below = append(l.Below, b.Name)
	}
	final, part := e.layerDir(l.Name), e.layerDir(layerPart+l.Name)
	// One of this name that is there has no mark that counts: nobody was told of it.
	if err := errors.Join(disk.RemoveTree(part), disk.RemoveIfThere(e.layerMark(l.Name)), disk.RemoveTree(final), os.Mkdir(part, 0o755)); err != nil {
		return nil, err
	}
	b := layerBuilder{e: e, root: part, dst: -1, differs: map[string]bool{}}
	for _, s := range changed {
		b.differs[s.Path] = true
	}
	if n > 0 { // else all that it holds is new
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
	e.crash("snapshot.built")
	if err := e.markLayer(l); err != nil {
		return nil, err
	}
	return append([]layer{l}, below...), nil
}

// squash makes the newest chain as short as it can be for what changed since its
// whole layer, for when nobody waits.
func (e *Engine) squash(ctx context.Context) error {
	e.snapMu.Lock()
	defer e.snapMu.Unlock()
	chain, err := e.newestChain(ctx)
	if err != nil || len(chain) <= 2 {
		return err
	}
	if chain, err = e.writeLayer(ctx, chain[0].Tree, chain, len(chain)-1, nil); err != nil {
		return err
	}
	e.newest = chain[0].Name
	return nil
}

// ReleaseSnapshots removes every layer but those to keep and those of the newest
// snapshot, which the next one is made on.
func (e *Engine) ReleaseSnapshots(ctx context.Context, keep []string) error {
	const op = "keeper.ReleaseSnapshots"
	e.snapMu.Lock()
	defer e.snapMu.Unlock()
	newest, err := e.newestChain(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	stays := map[string]bool{}
	for _, name := range keep {
		stays[name] = true
	}
	for _, l := range newest {
		stays[l.Name] = true
	}
	entries, err := os.ReadDir(e.opts.Snapshots)
	if err != nil {
		return fault.Wrap(op, err)
	}
	for _, en := range entries {
		name := strings.TrimPrefix(strings.TrimPrefix(en.Name(), layerPart), ".")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "~"), layerMark)
		if !isLayerName(name) || stays[name] {
			continue
		}
		delete(e.layered, name)
		if err := errors.Join(disk.RemoveIfThere(e.layerMark(name)), disk.RemoveTree(e.layerDir(en.Name()))); err != nil {
			return fault.Wrap(op, fmt.Errorf("remove layer %s: %w", name, err))
		}
	}
	return nil
}

// layerBuilder fills a layer directory by directory, with the directory and
// those to link from held open: ten thousand links are cheap that way.
type layerBuilder struct {
	e       *Engine
	root    string
	from    []int           // layers to link from, the topmost first
	differs map[string]bool // paths that they have otherwise
	dir     string
	dst     int
	src     []int
}

func (b *layerBuilder) open(layers []layer) error {
	for _, l := range layers {
		fd, err := unix.Open(b.e.layerDir(l.Name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: l.Name, Err: err}
		}
		b.from = append(b.from, fd)
	}
	return nil
}

func (b *layerBuilder) close() {
	b.leave()
	for _, fd := range b.from {
		unix.Close(fd)
	}
}

func (b *layerBuilder) leave() {
	for _, fd := range append(b.src, b.dst) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	b.dst, b.src = -1, nil
}

func (b *layerBuilder) enter(dir string) (err error) {
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
		// In a lower layer a link may lie on the way, which leads anywhere.
		if fd, err := disk.OpenDir(from, dir); err == nil {
			b.src = append(b.src, fd)
		}
	}
	return nil
}

func (b *layerBuilder) build(ctx context.Context, steps []gitstore.Step) error {
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

func (b *layerBuilder) put(ctx context.Context, s gitstore.Step) error {
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
	return b.e.moves.MaterializeAt(ctx, filepath.Join(b.root, filepath.FromSlash(s.Path)), s.Entry, wire.Path(s.Path), false)
}

// link takes a file from the topmost layer that has it; it reports false where
// there is none, or it has all the links that a file may have.
func (b *layerBuilder) link(name string) bool {
	for _, fd := range b.src {
		if err := unix.Linkat(fd, name, b.dst, name, 0); !errors.Is(err, fs.ErrNotExist) {
			return err == nil
		}
	}
	return false
}
