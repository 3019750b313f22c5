package scan

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Upper is what an overlay's upper changes of a tree, stored, and what of the upper
// was left out. Of the tree it reads what the upper touches.
func (s *Scanner) Upper(ctx context.Context, root int, base *gitstore.Lazy) ([]gitstore.Change, []wire.Skip, error) {
	var w *upperWalker
	for try := 0; ; try++ {
		w = s.newUpperWalker(ctx, root, base)
		w.ignores = ignoreFiles{slow: s.slowIgnores, none: try == 2}
		if err := w.run(); err != nil {
			return nil, nil, err
		}
		if !w.ignores.over(s.slowIgnores) || try == 2 {
			break
		}
	}
	w.cap.Skipped = append(w.cap.Skipped, w.ignores.bad[:min(len(w.ignores.bad), maxListed)]...)
	if err := w.store(); err != nil {
		return nil, nil, err
	}
	w.settle()
	var changes []gitstore.Change
	for p, en := range w.made {
		if was := base.At(p); was != en {
			changes = append(changes, gitstore.Change{Path: p, From: was, To: en})
		}
	}
	return changes, w.cap.Skipped, base.Err()
}

type upperWalker struct {
	scanner *Scanner
	ctx     context.Context
	root    int
	base    *gitstore.Lazy
	limit   int
	made    map[string]gitstore.Entry // what is other than in the base, none for what is gone
	cap     *Capture
	cands   []Candidate
	repos   nested.Tracked
	ignores ignoreFiles
	queue   []walkDir
	dirs    []string // directories of the upper, which exist in the task's tree
}

func (s *Scanner) newUpperWalker(ctx context.Context, root int, base *gitstore.Lazy) *upperWalker {
	return &upperWalker{
		scanner: s, ctx: ctx, root: root, base: base, limit: s.limits.WalkEntries, made: map[string]gitstore.Entry{},
		cap: &Capture{Tracked: map[string]Tracked{}, held: s.Index.Count}, // as many, give or take, as the base has
	}
}

// at is what the task's tree has at a path.
func (w *upperWalker) at(p string) gitstore.Entry {
	if en, ok := w.made[p]; ok {
		return en
	}
	return w.base.At(p)
}

// erase removes what the base has at p and under it.
func (w *upperWalker) erase(p string, below bool) {
	if !below {
		w.made[p] = gitstore.None
	}
	w.base.Each(p, func(q string) bool { w.made[q] = gitstore.None; return true })
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
	if len(w.cap.Skipped) < maxListed {
		w.cap.Skipped = append(w.cap.Skipped, wire.Skip{Path: wire.Path(p), Reason: reason})
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
		return fault.New("", fault.Exhausted, "Have the task write fewer files.", errors.New("the task's tree has too many entries to scan"))
	}
	if !inGit {
		git := wire.JoinPath(dir, ".git")
		holds := dir != "." && (w.base.Folder(git) || w.base.At(git).Exists() || slices.ContainsFunc(entries, func(en os.DirEntry) bool { return en.Name() == ".git" }))
		if holds { // a repository of its own
			sets, inIgnored = nil, false
			index := nested.IndexAt(fd)
			if en := w.at(git + "/index"); index == nil && en.IsRegular() {
				if index, err = w.smallFile(en, nested.MaxIndex); err != nil && !fault.Is(err, fault.Exhausted) {
					return err
				}
			}
			w.repos.Add(dir, index)
		}
		content, err := w.ignoreFile(fd, dir)
		if err != nil {
			return err
		}
		if set, ok := w.ignores.add(dir, content, holds || scaffold(dir)); ok {
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
	en := w.at(wire.JoinPath(dir, ".gitignore"))
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
	return w.scanner.store.Blob(w.ctx, en.ID, max)
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
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && raw.Rdev == 0 || st.IsRegular() && st.Size == 0 && marked(fd, name, disk.Whiteout) {
		w.erase(p, false)
		return nil
	}
	was := w.base.At(p)
	inBase := was.Exists()
	gitHere := inGit || (name == ".git" && dir != ".")
	ignoredHere := !gitHere && (inIgnored || len(sets) > 0 && ignored(sets, p, st.IsDir()) != nil)
	switch {
	case st.IsDir():
		if ignoredHere && !w.base.Folder(p) && !w.repos.Dirs[p] {
			return nil
		}
		if marked(fd, name, disk.Opaque) {
			w.erase(p, true)
		}
		if inBase && was.Mode != wire.ModeEmptyDir {
			w.made[p] = gitstore.None
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
	w.cands = append(w.cands, Candidate{Path: p, Stat: st, Prev: Tracked{Entry: was}})
	return nil
}

// marked reports whether a name carries one of overlayfs's marks.
func marked(fd int, name, mark string) bool {
	f, err := disk.OpenBeneath(fd, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(f)
	return disk.Marked(f, mark)
}

// store hashes and stores what the task wrote, within the limits.
func (w *upperWalker) store() error {
	cands := w.scanner.guard(w.cap, w.cands)
	contents := make([]objects.Object, len(cands))
	refused := make([]error, len(cands))
	stored := make([]gitstore.Entry, len(cands))
	for i := range cands {
		contents[i] = w.scanner.store.ContentObject(w.ctx, &stored[i], &refused[i], func() (io.ReadCloser, disk.Stat, error) {
			return disk.OpenContent(w.root, cands[i].Path, w.scanner.limits.LargestFile)
		})
	}
	ids, err := w.scanner.store.Write(w.ctx, contents)
	if err != nil {
		return err
	}
	for i, c := range cands {
		if ids[i] != "" {
			stored[i].ID = ids[i]
			w.made[c.Path] = stored[i]
			continue
		}
		if err := refused[i]; err != nil && !disk.IsGone(err) && !errors.Is(err, disk.ErrGone) && !w.cap.unreadable(c, err) {
			return err
		}
		if refused[i] == nil || errors.Is(refused[i], disk.ErrGone) {
			w.cap.Skipped = append(w.cap.Skipped, wire.Skip{Path: wire.Path(c.Path), Reason: "was changing while it was read"})
		}
	}
	return nil
}

// settle gives directories that ended up empty their mark, and takes it from
// those that are not.
func (w *upperWalker) settle() {
	there := map[string]gitstore.Entry{}
	for p, en := range w.made {
		if en.Exists() {
			there[p] = en
		}
	}
	full := gitstore.Directories(there)
	for _, d := range w.dirs {
		if !full[d] && !w.keeps(d) && !w.at(d).Exists() {
			w.made[d] = gitstore.Entry{Mode: wire.ModeEmptyDir}
			there[d] = w.made[d]
		}
	}
	for p := range gitstore.Directories(there) {
		if w.at(p).Mode == wire.ModeEmptyDir {
			w.made[p] = gitstore.None
		}
	}
}

// keeps reports whether something of the base is still in a directory.
func (w *upperWalker) keeps(d string) bool {
	return !w.base.Each(d, func(q string) bool {
		_, other := w.made[q]
		return other
	})
}
