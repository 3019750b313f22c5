package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Tree reads what a task wrote. The upper is hostile: links are not followed,
// devices and sockets are left out and listed, and so is a .git at its root.
func (e *Engine) Tree(ctx context.Context, req wire.TreeRequest) (wire.TreeReply, error) {
	const op = "keeper.Tree"
	if err := checkPlanID(req.ID); err != nil {
		return wire.TreeReply{}, fault.Wrap(op, err)
	}
	if err := wire.CheckPath(req.Upper, false); err != nil {
		return wire.TreeReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("upper %q %w", wire.Short(req.Upper), err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, err := e.upperTree(ctx, req)
	return reply, fault.Wrap(op, err)
}

func (e *Engine) upperTree(ctx context.Context, req wire.TreeRequest) (wire.TreeReply, error) {
	if err := e.whole(); err != nil {
		return wire.TreeReply{}, err
	}
	base, err := e.store.Resolve(ctx, req.Base)
	if err != nil {
		return wire.TreeReply{}, err
	}
	baseID, err := e.treeish(ctx, base, "HEAD")
	if err != nil {
		return wire.TreeReply{}, err
	}
	baseTree, err := e.store.ReadTree(ctx, baseID, true)
	if err != nil {
		return wire.TreeReply{}, err
	}
	uppers, err := unix.Open(e.opts.Uppers, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wire.TreeReply{}, &os.PathError{Op: "open", Path: e.opts.Uppers, Err: err}
	}
	defer unix.Close(uppers)
	root, err := disk.OpenDir(uppers, req.Upper)
	if err != nil {
		return wire.TreeReply{}, err
	}
	defer unix.Close(root)
	var w *upperWalker
	for try := 0; ; try++ {
		w = e.newUpperWalker(ctx, root, baseTree)
		w.ignores = ignoreFiles{slow: e.slowIgnores, none: try == 2}
		if err := w.run(); err != nil {
			return wire.TreeReply{}, err
		}
		if !w.ignores.over(e.slowIgnores) || try == 2 {
			break
		}
	}
	w.cap.skipped = append(w.cap.skipped, w.ignores.bad[:min(len(w.ignores.bad), maxListed)]...)
	if err := w.store(); err != nil {
		return wire.TreeReply{}, err
	}
	w.settle()
	tree, err := e.store.WriteTree(ctx, w.tree)
	if err != nil {
		return wire.TreeReply{}, err
	}
	note := req.Note
	note.Kind = "kept"
	if note.Message == "" {
		note.Message = "The task's own tree"
	}
	c, err := e.makeCommit(ctx, tree, base, note)
	if err != nil {
		return wire.TreeReply{}, err
	}
	if err := e.store.ForceRef(ctx, taskRef(req.ID), c.Commit); err != nil {
		return wire.TreeReply{}, err
	}
	d, err := e.store.Diff(ctx, baseID, tree, wire.DiffRequest{MaxBytes: -1})
	return wire.TreeReply{Commit: c.Commit, Tree: tree, Base: base, Changes: d.Changes, More: d.More, Left: w.cap.skipped}, err
}

type upperWalker struct {
	e        *Engine
	ctx      context.Context
	root     int
	base     gitstore.Tree
	baseDirs map[string]bool
	limit    int
	tree     gitstore.Tree
	cap      *capture
	cands    []candidate
	repos    gitstore.RepoPaths
	ignores  ignoreFiles
	queue    []walkDir
	dirs     []string // directories of the upper, which exist in the task's tree
}

func (e *Engine) newUpperWalker(ctx context.Context, root int, baseTree gitstore.Tree) *upperWalker {
	return &upperWalker{
		e: e, ctx: ctx, root: root, base: baseTree, baseDirs: gitstore.Directories(baseTree), limit: e.opts.Limits.WalkEntries,
		tree: maps.Clone(baseTree), cap: &capture{tracked: map[string]tracked{}, held: len(baseTree)},
	}
}

// erase removes what the base has at p and under it.
func (w *upperWalker) erase(p string, below bool) {
	if !below {
		delete(w.tree, p)
	}
	if !w.baseDirs[p] {
		return
	}
	for q := range w.base {
		if strings.HasPrefix(q, p+"/") {
			delete(w.tree, q)
		}
	}
}

func (w *upperWalker) run() error {
	w.queue = []walkDir{{dir: "."}}
	for len(w.queue) > 0 {
		d := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		if err := w.walk(d.dir, d.sets, d.inIgnored, d.inGit); err != nil {
			return err
		}
	}
	return nil
}

func (w *upperWalker) leave(p, reason string) {
	if len(w.cap.skipped) < maxListed {
		w.cap.skipped = append(w.cap.skipped, wire.Skip{Path: wire.Path(p), Reason: reason})
	}
}

func (w *upperWalker) walk(dir string, sets []ignoreSet, inIgnored, inGit bool) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	fd, err := disk.OpenDir(w.root, dir)
	if err != nil {
		if disk.IsDenied(err) {
			w.leave(dir, "can't be read")
			return nil
		}
		if disk.IsGone(err) {
			return nil
		}
		return err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	if w.limit -= len(entries); w.limit < 0 {
		return fault.New("", fault.Exhausted, "Have the task write fewer files.", errors.New("the task's tree has too many entries to look at"))
	}
	if !inGit {
		git := wire.JoinPath(dir, ".git")
		_, file := w.base[git]
		nested := dir != "." && (w.baseDirs[git] || file || slices.ContainsFunc(entries, func(en os.DirEntry) bool { return en.Name() == ".git" }))
		if nested {
			sets, inIgnored = nil, false
			index := gitstore.IndexAt(fd)
			if en := w.tree[git+"/index"]; index == nil && en.IsRegular() {
				if index, err = w.smallFile(en, gitstore.MaxIndex); err != nil && !fault.Is(err, fault.Exhausted) {
					return err
				}
			}
			w.repos.Add(dir, index)
		}
		content, err := w.ignoreFile(fd, dir)
		if err != nil {
			return err
		}
		if set, ok := w.ignores.add(dir, content, nested || scaffold(dir)); ok {
			sets = append(sets[:len(sets):len(sets)], set)
		}
	}
	for _, en := range entries {
		err := w.entry(fd, dir, en.Name(), sets, inIgnored, inGit)
		if disk.IsDenied(err) {
			w.leave(dir, "can't be looked into")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignoreFile returns a directory's .gitignore as the task sees it.
func (w *upperWalker) ignoreFile(fd int, dir string) ([]byte, error) {
	if _, err := disk.Lstat(fd, ".gitignore"); err == nil {
		content, err := readIgnoreAt(fd)
		if err != nil {
			return nil, nil //nolint:nilerr // a whiteout, or not a file: there is none
		}
		return content, nil
	}
	en := w.tree[wire.JoinPath(dir, ".gitignore")]
	if !en.IsRegular() {
		return nil, nil
	}
	content, err := w.smallFile(en, maxIgnoreFile)
	if fault.Is(err, fault.Exhausted) {
		return make([]byte, maxIgnoreFile+1), nil // which is said to be too much
	}
	return content, err
}

// smallFile reads a file of the task's tree that has at most max bytes.
func (w *upperWalker) smallFile(en gitstore.Entry, max int64) ([]byte, error) {
	if en.Chunked {
		return nil, fault.New("", fault.Exhausted, "", errors.New("the file is too large to be read at once"))
	}
	return w.e.store.Blob(w.ctx, en.ID, max)
}

func (w *upperWalker) entry(fd int, dir, name string, sets []ignoreSet, inIgnored, inGit bool) error {
	p := wire.JoinPath(dir, name)
	leave := func(reason string) { w.leave(p, reason) }
	if p == ".git" {
		leave("only the keeper writes .git")
		return nil
	}
	if len(p) > wire.MaxTreePath && !defence.Off(defence.KeeperDepth) {
		p = p[:200] + "…"
		leave("the path is too long")
		return nil
	}
	var raw unix.Stat_t
	if err := unix.Fstatat(fd, name, &raw, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if disk.IsGone(err) {
			return nil
		}
		return &os.PathError{Op: "lstat", Path: p, Err: err}
	}
	st := disk.StatOf(&raw)
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && raw.Rdev == 0 || st.IsRegular() && st.Size == 0 && hasXattr(fd, name, "overlay.whiteout") {
		w.erase(p, false)
		return nil
	}
	_, inBase := w.base[p]
	gitHere := inGit || (name == ".git" && dir != ".")
	ignoredHere := !gitHere && (inIgnored || len(sets) > 0 && ignored(sets, p, st.IsDir()) != nil)
	switch {
	case st.IsDir():
		if ignoredHere && !w.baseDirs[p] && !w.repos.Dirs[p] {
			return nil
		}
		if hasXattr(fd, name, "overlay.opaque") {
			w.erase(p, true)
		}
		if inBase && w.base[p].Mode != wire.ModeEmptyDir {
			delete(w.tree, p)
		}
		w.dirs = append(w.dirs, p)
		w.queue = append(w.queue, walkDir{dir: p, sets: sets, inIgnored: ignoredHere, inGit: gitHere})
		return nil
	case ignoredHere && !inBase && !w.repos.Paths[p]:
		return nil
	case !st.IsRegular() && !st.IsSymlink():
		leave("is a " + st.Kind())
		return nil
	}
	w.erase(p, true)
	w.cands = append(w.cands, candidate{p, st, tracked{Entry: w.base[p]}})
	return nil
}

// hasXattr reports whether a name carries one of overlayfs's marks, in the
// namespace that unprivileged mounts use or the privileged one.
func hasXattr(fd int, name, attr string) bool {
	f, err := disk.OpenBeneath(fd, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(f)
	var buf [8]byte
	for _, ns := range []string{"user.", "trusted."} {
		if n, err := unix.Fgetxattr(f, ns+attr, buf[:]); err == nil && (attr != "overlay.opaque" || n > 0 && buf[0] == 'y') {
			return true
		}
	}
	return false
}

// store hashes and stores what the task wrote, within the limits.
func (w *upperWalker) store() error {
	cands := w.e.guard(w.cap, w.cands)
	objects := make([]gitstore.Object, len(cands))
	refused := make([]error, len(cands))
	stored := make([]gitstore.Entry, len(cands))
	for i := range cands {
		objects[i] = w.e.store.ContentObject(w.ctx, &stored[i], &refused[i], func() (io.ReadCloser, disk.Stat, error) {
			return disk.OpenContent(w.root, cands[i].path, w.e.opts.Limits.LargestFile)
		})
	}
	ids, err := w.e.store.Write(w.ctx, objects)
	if err != nil {
		return err
	}
	for i, c := range cands {
		if ids[i] != "" {
			stored[i].ID = ids[i]
			w.tree[c.path] = stored[i]
			continue
		}
		if err := refused[i]; err != nil && !disk.IsGone(err) && !errors.Is(err, disk.ErrGone) && !w.cap.unreadable(c, err) {
			return err
		}
		if refused[i] == nil || errors.Is(refused[i], disk.ErrGone) {
			w.cap.skipped = append(w.cap.skipped, wire.Skip{Path: wire.Path(c.path), Reason: "was changing while it was read"})
		}
	}
	return nil
}

// settle gives directories that ended up empty their mark, and takes it from
// those that are not.
func (w *upperWalker) settle() {
	full := gitstore.Directories(w.tree)
	for _, d := range w.dirs {
		if !full[d] && !w.tree[d].Exists() {
			w.tree[d] = gitstore.Entry{Mode: wire.ModeEmptyDir}
		}
	}
	full = gitstore.Directories(w.tree)
	for p, en := range w.tree {
		if en.Mode == wire.ModeEmptyDir && full[p] {
			delete(w.tree, p)
		}
	}
}
