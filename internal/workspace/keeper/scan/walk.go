package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/watch"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Walk is what one walk over a tree saw.
type Walk struct {
	fresh     []Candidate // files, links and empty directories that are not as they were captured
	same      int         // those that are
	NamesRead int         // names in the directories that were read
	ignored   []string    // directories left out because they are ignored
	outside   outside     // what is in no checkpoint because it is ignored
	skipped   []wire.Skip
	kept      map[string]bool // directories that could not be read: what they held stays captured
	more      int             // left out beyond skipped
	nested    []string        // directories with a .git of their own
	known     []*skippedDir   // directories that were passed over
	plains    []*skippedDir   // and those that might be the next time
	all       bool            // nothing is ignored
	linked    map[string]bool // files with more than one name
}

// keeps reports whether a path is in a directory that could not be read.
func (s *Walk) keeps(p string) bool {
	for ; p != "."; p = wire.ParentDir(p) {
		if s.kept[p] {
			return true
		}
	}
	return s.kept["."]
}

type walker struct {
	ctx         context.Context
	max         int // entries that are read
	share       int // of them in one directory
	limit       int // of them left
	tracked     *Index
	scanNumber  uint64
	skippedDirs map[string]*skippedDir
	queue       []walkDir // directories that hold something captured
	fringe      []walkDir // and those that do not: their turn comes after
	later       []walkDir // nested repositories' objects: read after their refs, so that every object a captured ref names is captured too
	repos       nested.Tracked
	ignores     ignoreFiles
	watch       *watch.Watch // nil when nothing is watched
	Walk
}

// scanTree walks the live tree.
func (s *Scanner) scanTree(ctx context.Context) (*Walk, error) {
	if err := s.may(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		sc, again, err := s.scanOnce(ctx, try == 2)
		if err != nil || !again || try == 2 {
			return sc, fault.Wrap("keeper.scan", err)
		}
	}
}

// scanOnce walks the live tree, and says whether an ignore file had a say for a
// while and then lost it.
func (s *Scanner) scanOnce(ctx context.Context, last bool) (*Walk, bool, error) {
	s.scans++
	w := &walker{
		ignores: ignoreFiles{slow: s.slowIgnores, none: last},
		ctx:     ctx, max: s.limits.WalkEntries, share: max(1, s.limits.WalkEntries/3), limit: s.limits.WalkEntries, tracked: s.Index, scanNumber: s.scans, skippedDirs: s.skippedDirs,
	}
	w.all = ctx.Value(allKey{}) != nil
	err := s.watching(ctx, w, func() error { return w.run(s.Root) })
	return &w.Walk, w.ignores.over(s.slowIgnores), err
}

// missing are the captured paths that the newest scan did not meet.
func (s *Scanner) missing(sc *Walk) []string {
	met := sc.same
	for _, s := range sc.fresh {
		if s.Prev.Exists() {
			met++
		}
	}
	if met == s.Index.Count {
		return nil
	}
	var out []string
	for p, l := range s.Index.All() {
		if l.seen != s.scans && (len(sc.kept) == 0 || !sc.keeps(p)) {
			out = append(out, p)
		}
	}
	return out
}

func readIgnoreAt(dirfd int) ([]byte, error) {
	fd, err := disk.OpenBeneath(dirfd, ".gitignore", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".gitignore")
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, disk.ErrGone)
	}
	buf := make([]byte, min(st.Size(), maxIgnoreFile+1))
	n, err := f.ReadAt(buf, 0)
	if n == 0 && err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// walkDir is a directory whose turn will come. Each is opened from the root, so
// that a deep tree takes no more descriptors, and no deeper stack, than a flat one.
type walkDir struct {
	dir              string
	was              *Folder // what was captured of it; nil when nothing was
	sets             []ignoreSet
	inIgnored, inGit bool
}

func (w *walker) run(rootfd int) error {
	w.queue = []walkDir{{dir: ".", was: &w.tracked.root}}
	for {
		var d walkDir
		switch {
		case len(w.queue) > 0:
			d, w.queue = w.queue[len(w.queue)-1], w.queue[:len(w.queue)-1]
		case len(w.fringe) > 0:
			d, w.fringe = w.fringe[len(w.fringe)-1], w.fringe[:len(w.fringe)-1]
		case len(w.later) > 0:
			d, w.later = w.later[0], w.later[1:]
		default:
			w.end()
			return nil
		}
		if err := w.walk(rootfd, d); err != nil {
			return err
		}
	}
}

func (w *walker) end() {
	w.skipped = append(w.skipped, w.ignores.bad[:min(len(w.ignores.bad), maxListed)]...)
	if w.more > 0 {
		w.skipped = append(w.skipped, wire.Skip{Path: ".", Reason: fmt.Sprintf("holds %d more that were left out", w.more), Files: w.more})
	}
}

// maxListed bounds what is listed of one walk: a tree can hold millions of
// things that are left out.
const maxListed = 10_000

func (w *walker) skip(p, reason string) {
	if len(w.skipped) >= maxListed {
		w.more++
		return
	}
	w.skipped = append(w.skipped, wire.Skip{Path: wire.Path(p), Reason: reason})
}

// keep leaves a directory that permissions close as it was captured.
func (w *walker) keep(dir, reason string) {
	if w.kept == nil {
		w.kept = map[string]bool{}
	}
	w.kept[dir] = true
	w.skip(dir, reason)
}

// walk reads one directory.
func (w *walker) walk(rootfd int, d walkDir) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	fd, err := disk.OpenDir(rootfd, d.dir)
	if err != nil {
		switch {
		case disk.IsGone(err):
			return nil
		case disk.IsDenied(err):
			w.keep(d.dir, "can't be read")
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	if w.watch != nil {
		w.watch.Dir(fd, d.dir, watch.Scanned)
	}
	if w.skipKnownDir(fd, &d) {
		return nil
	}
	before, err := disk.Fstat(fd)
	if err != nil {
		return err
	}
	entries, ok, err := w.names(fd, &d)
	if err != nil || !ok {
		return err
	}
	if len(entries) == 0 && d.dir != "." {
		w.see(d.dir, before, w.tracked.Leaf(d.dir))
		return nil
	}
	if !d.inGit {
		w.rules(fd, &d, entries)
	}
	from := len(w.fresh)
	for _, en := range entries {
		err := w.entry(fd, &d, en)
		if disk.IsDenied(err) { // its names can be read, and nothing more
			w.keep(d.dir, "can't be looked into")
			return nil
		}
		if err != nil {
			return err
		}
	}
	w.plain(&d, before, entries, from)
	return nil
}

// names reads a directory. One with more than its share of what a scan may take,
// and all whose turn comes when that is used up, are left as they were captured:
// the scan of the rest, and what is done to remove them, go on.
func (w *walker) names(fd int, d *walkDir) (_ []disk.DirEntry, ok bool, err error) {
	share := min(w.limit, w.share)
	entries, err := disk.ReadDir(fd, share)
	if err != nil {
		return nil, false, err
	}
	w.limit -= min(len(entries), share)
	w.NamesRead += len(entries)
	if len(entries) > share {
		w.keep(d.dir, fmt.Sprintf("is not looked into: there are more than %d files and folders", w.max))
		return nil, false, nil
	}
	return entries, true, nil
}

// rules takes in what a directory says of what is ignored in it.
func (w *walker) rules(fd int, d *walkDir, entries []disk.DirEntry) {
	git, ignores := false, false
	for _, en := range entries {
		git = git || en.Name == ".git" && d.dir != "."
		ignores = ignores || en.Name == ".gitignore"
	}
	if git {
		w.nested, d.sets, d.inIgnored = append(w.nested, d.dir), nil, false
		w.repos.Add(d.dir, nested.IndexAt(fd))
	}
	if !ignores || w.all {
		return
	}
	if content, err := readIgnoreAt(fd); err == nil {
		if set, ok := w.ignores.add(d.dir, content, git || scaffold(d.dir)); ok {
			d.sets = append(d.sets[:len(d.sets):len(d.sets)], set)
		}
	}
}

// see notes a file, link or empty directory that is kept; l is what was captured
// of it.
func (w *walker) see(p string, st disk.Stat, l *Leaf) {
	var prev Tracked
	if l != nil {
		if l.seen == w.scanNumber { // named twice, as while it is renamed
			return
		}
		prev, l.seen = l.Tracked, w.scanNumber
		if prev.Stat == st && !st.IsDir() || st.IsDir() && prev.Mode == wire.ModeEmptyDir {
			w.same++
			return
		}
	}
	w.fresh = append(w.fresh, Candidate{Path: p, Stat: st, Prev: prev})
}

func (w *walker) entry(fd int, d *walkDir, en disk.DirEntry) error {
	name := en.Name
	p := wire.JoinPath(d.dir, name)
	if p == ".git" || p == ".git-new" {
		if w.watch != nil && p != ".git" {
			w.watch.Lose("a history is being brought in")
		}
		return nil
	}
	var st disk.Stat
	looked := en.Kind == unix.DT_UNKNOWN
	if looked { // where the file system does not tell types
		var err error
		var links uint64
		if st, links, err = disk.LstatLinks(fd, name); err != nil {
			return disk.IgnoreGone(err)
		}
		w.links(p, st, links)
	}
	isDir := en.Kind == unix.DT_DIR || looked && st.IsDir()
	if len(p) > wire.MaxTreePath && !defence.Off(defence.KeeperDepth) {
		w.skip(p[:200]+"…", fmt.Sprintf("the path is longer than %d bytes", wire.MaxTreePath))
		return nil
	}
	gitHere := d.inGit || (name == ".git" && d.dir != ".")
	why := ""
	if !gitHere {
		why = ignoredBy(d.sets, p, isDir, d.inIgnored)
	}
	if isDir {
		w.dir(fd, d, p, name, why, gitHere)
		return nil
	}
	was := d.was.leaf(name)
	if why != "" && was == nil && !w.repos.Paths[p] {
		w.outside.add(p, why)
		return nil
	}
	if !looked {
		var err error
		var links uint64
		if st, links, err = disk.LstatLinks(fd, name); err != nil {
			return disk.IgnoreGone(err)
		}
		w.links(p, st, links)
		if st.IsDir() { // it took the file's place just now
			en.Kind = unix.DT_DIR
			return w.entry(fd, d, en)
		}
	}
	if why != "" {
		w.outside.keep(p)
	}
	if !st.IsRegular() && !st.IsSymlink() {
		w.skip(p, "is a "+st.Kind())
		return nil
	}
	w.see(p, st, was)
	return nil
}

// dir decides whether a directory in d is read.
func (w *walker) dir(fd int, d *walkDir, p, name, why string, gitHere bool) {
	was := d.was.sub(name)
	if name == "objects" && d.inGit && path.Base(d.dir) == ".git" {
		w.later = append(w.later, walkDir{dir: p, was: was, inGit: true})
		return
	}
	if why != "" && was == nil && !w.repos.Dirs[p] {
		git, empty := peekInto(fd, name)
		if !git || strings.Contains(p, "node_modules") {
			if len(w.ignored) < maxListed {
				w.ignored = append(w.ignored, p)
			}
			if !empty {
				w.outside.add(p, why)
			}
			w.watchIgnored(fd, p, name)
			return
		}
	}
	if why != "" {
		w.outside.keep(p)
	}
	next := walkDir{p, was, d.sets, why != "", gitHere}
	if was != nil {
		w.queue = append(w.queue, next)
	} else {
		w.fringe = append(w.fringe, next)
	}
}

// peekInto reports whether the directory name has a .git, for a repository inside
// workspace/ is kept even where the outer tree ignores it, and whether it is
// empty, so that nothing in it can be lost.
func peekInto(fd int, name string) (git, empty bool) {
	sub, err := disk.OpenDir(fd, name)
	if err != nil {
		return false, disk.IsGone(err)
	}
	f := os.NewFile(uintptr(sub), name)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstatat(sub, ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return true, false
	}
	names, err := f.Readdirnames(1)
	return false, len(names) == 0 && errors.Is(err, io.EOF)
}
