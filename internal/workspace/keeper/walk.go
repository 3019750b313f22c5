package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"golang.org/x/sys/unix"
)

// Skip is a path that was left out of a checkpoint, and why.
type Skip struct {
	Path   Path   `json:"path"`
	Reason string `json:"reason"`
	// Files is how many it stands for, when that is known and more than one.
	Files int `json:"files,omitempty"`
	// Kept says that the path itself is in the checkpoint: it is only not heeded.
	Kept bool `json:"kept,omitempty"`
}

// scan is what one walk over a tree saw.
type scan struct {
	found   map[string]fileStat // files, links and empty directories
	ignored []string            // directories left out because they are ignored
	outside outside             // what is in no checkpoint because it is ignored
	skipped []Skip
	kept    map[string]bool // directories that could not be read: what they held stays captured
	more    int             // left out beyond skipped
	nested  []string        // directories with a .git of their own
}

// keeps reports whether a path is in a directory that could not be read.
func (s *scan) keeps(p string) bool {
	for ; p != "."; p = parentDir(p) {
		if s.kept[p] {
			return true
		}
	}
	return s.kept["."]
}

type walker struct {
	ctx      context.Context
	limit    int
	known    func(p string) bool // captured before
	knownDir func(p string) bool // holds something captured before
	// ignoreFile returns the .gitignore of a directory that has one.
	ignoreFile func(dirfd int, dir string) ([]byte, error)
	queue      []walkDir
	later      []laterDir
	repos      repoPaths
	ignores    ignoreFiles
	scan
}

// laterDir is a nested repository's objects: read after its refs, so that
// every object a captured ref names is captured too.
type laterDir struct{ dir string }

// scanTree walks the live tree.
func (e *Engine) scanTree(ctx context.Context) (*scan, error) {
	if err := e.whole(); err != nil {
		return nil, err
	}
	var dirs map[string]bool
	for try := 0; ; try++ {
		sc, again, err := e.scanOnce(ctx, &dirs, try == 2)
		if err != nil || !again || try == 2 {
			return sc, fault.Wrap("keeper.scan", err)
		}
	}
}

// scanOnce walks the live tree, and says whether an ignore file had a say for a
// while and then lost it.
func (e *Engine) scanOnce(ctx context.Context, held *map[string]bool, last bool) (*scan, bool, error) {
	w := &walker{
		ignores: ignoreFiles{slow: e.slowIgnores, none: last},
		ctx:     ctx, limit: e.opts.Limits.WalkEntries,
		known: func(p string) bool { _, ok := e.tracked[p]; return ok },
		knownDir: func(p string) bool {
			if *held == nil {
				*held = directories(e.tracked)
			}
			return (*held)[p]
		},
		ignoreFile: readIgnoreAt,
		scan:       scan{found: make(map[string]fileStat, len(e.tracked))},
	}
	err := w.run(e.rootFD)
	return &w.scan, w.ignores.over(e.slowIgnores), err
}

// directories returns every directory that holds one of the paths.
func directories[T any](paths map[string]T) map[string]bool {
	dirs := map[string]bool{}
	for p := range paths {
		for d := parentDir(p); d != "." && !dirs[d]; d = parentDir(d) {
			dirs[d] = true
		}
	}
	return dirs
}

func readIgnoreAt(dirfd int, _ string) ([]byte, error) {
	fd, err := openBeneath(dirfd, ".gitignore", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".gitignore")
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, errGone)
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
	sets             []ignoreSet
	inIgnored, inGit bool
}

func (w *walker) run(rootfd int) error {
	w.queue = []walkDir{{dir: "."}}
	for len(w.queue) > 0 || len(w.later) > 0 {
		if len(w.queue) == 0 {
			w.queue, w.later = append(w.queue, walkDir{dir: w.later[0].dir, inGit: true}), w.later[1:]
		}
		d := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		if err := w.walk(rootfd, d.dir, d.sets, d.inIgnored, d.inGit); err != nil {
			return err
		}
	}
	w.skipped = append(w.skipped, w.ignores.bad[:min(len(w.ignores.bad), maxListed)]...)
	if w.more > 0 {
		w.skipped = append(w.skipped, Skip{Path: ".", Reason: fmt.Sprintf("holds %d more that were left out", w.more), Files: w.more})
	}
	return nil
}

// maxListed bounds what is listed of one walk: a tree can hold millions of
// things that are left out.
const maxListed = 10_000

func (w *walker) skip(p, reason string) {
	if len(w.skipped) >= maxListed {
		w.more++
		return
	}
	w.skipped = append(w.skipped, Skip{Path: Path(p), Reason: reason})
}

// keep leaves a directory that permissions close as it was captured.
func (w *walker) keep(dir, reason string) {
	if w.kept == nil {
		w.kept = map[string]bool{}
	}
	w.kept[dir] = true
	w.skip(dir, reason)
}

// walk looks at one directory.
func (w *walker) walk(rootfd int, dir string, sets []ignoreSet, inIgnored, inGit bool) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	fd, err := openDir(rootfd, dir)
	if err != nil {
		switch {
		case isGone(err):
			return nil
		case isDenied(err):
			w.keep(dir, "can't be read")
			return nil
		}
		return err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if w.limit -= len(entries); w.limit < 0 {
		return fault.New("", fault.Exhausted, "Ignore or remove directories with very many files.", errors.New("the tree has too many entries to look at"))
	}
	if len(entries) == 0 && dir != "." {
		st, err := lstatAt(fd, ".")
		if err != nil {
			return nil //nolint:nilerr // it was removed while we looked
		}
		w.found[dir] = st
		return nil
	}
	if !inGit {
		for _, en := range entries {
			if en.Name() == ".git" && dir != "." {
				w.nested, sets, inIgnored = append(w.nested, dir), nil, false
				w.repos.add(dir, indexAt(fd))
			}
		}
		for _, en := range entries {
			if en.Name() != ".gitignore" {
				continue
			}
			if content, err := w.ignoreFile(fd, dir); err == nil {
				keepAll := scaffold(dir) || (len(w.nested) > 0 && w.nested[len(w.nested)-1] == dir)
				if set, ok := w.ignores.add(dir, content, keepAll); ok {
					sets = append(sets[:len(sets):len(sets)], set)
				}
			}
		}
	}
	for _, en := range entries {
		err := w.entry(fd, dir, en, sets, inIgnored, inGit)
		if isDenied(err) { // its names can be read, and nothing more
			w.keep(dir, "can't be looked into")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(fd int, dir string, en os.DirEntry, sets []ignoreSet, inIgnored, inGit bool) error {
	name := en.Name()
	p := joinPath(dir, name)
	if p == ".git" || p == ".git-new" {
		return nil
	}
	isDir := en.Type() == os.ModeDir
	st := fileStat{}
	if !isDir {
		var err error
		if st, err = lstatAt(fd, name); err != nil {
			if isGone(err) {
				return nil
			}
			return err
		}
		isDir = st.isDir() // where the file system does not tell types
	}
	if len(p) > maxTreePath && !defence.Off(defence.KeeperDepth) {
		w.skip(p[:200]+"…", fmt.Sprintf("the path is longer than %d bytes", maxTreePath))
		return nil
	}
	gitHere := inGit || (name == ".git" && dir != ".")
	why := ""
	if !gitHere {
		why = ignoredBy(sets, p, isDir, inIgnored)
	}
	ignoredHere := why != ""
	if isDir {
		if name == "objects" && inGit && path.Base(dir) == ".git" {
			w.later = append(w.later, laterDir{p})
			return nil
		}
		if ignoredHere && !w.knownDir(p) && !w.repos.dirs[p] {
			git, empty := lookInto(fd, name)
			if !git || strings.Contains(p, "node_modules") {
				if len(w.ignored) < maxListed {
					w.ignored = append(w.ignored, p)
				}
				if !empty {
					w.outside.add(p, why)
				}
				return nil
			}
		}
		if ignoredHere {
			w.outside.keep(p)
		}
		w.queue = append(w.queue, walkDir{p, sets, ignoredHere, gitHere})
		return nil
	}
	if ignoredHere {
		if !w.known(p) && !w.repos.paths[p] {
			w.outside.add(p, why)
			return nil
		}
		w.outside.keep(p)
	}
	if !st.isRegular() && !st.isSymlink() {
		w.skip(p, "is a "+st.kind())
		return nil
	}
	w.found[p] = st
	return nil
}

// lookInto reports whether the directory name has a .git, for a repository inside
// workspace/ is kept even where the outer tree ignores it, and whether it is
// empty, so that nothing in it can be lost.
func lookInto(fd int, name string) (git, empty bool) {
	sub, err := openDir(fd, name)
	if err != nil {
		return false, isGone(err)
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
