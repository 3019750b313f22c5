package scan

import (
	"slices"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A tree may contain far more files than a checkpoint holds. Directories that were left out
// for that reason are not read file by file again and again: the number of their files is
// remembered as long as the directory's own times do not change. The files' contents don't
// matter, as none is captured.

// skippedDir is a directory that is left out of checkpoints because it is in a heap, and as it
// was when its files were counted.
type skippedDir struct {
	dir   string
	stat  disk.Stat // of the directory
	rules []slowIgnore
	subs  []string // the directories in it
	files int
	bytes int64
	names []string // of its files, as far as they were listed
}

// minSkippedDir is how many files a directory must have to be worth remembering.
const minSkippedDir = 32

// maxSkippedDirs bounds how many are remembered.
const maxSkippedDirs = 100_000

// rulesOf identifies the ignore files that apply.
func rulesOf(sets []ignoreSet) []slowIgnore {
	out := make([]slowIgnore, len(sets))
	for i, s := range sets {
		out[i] = s.slow
	}
	return out
}

// skipKnownDir skips a directory whose files were left out, if it has not changed.
func (w *walker) skipKnownDir(fd int, d *walkDir) bool {
	l := w.skippedDirs[d.dir]
	if l == nil || d.was != nil || d.inGit || d.inIgnored {
		return false
	}
	st, err := disk.Fstat(fd)
	if err != nil || st != l.stat || !slices.Equal(rulesOf(d.sets), l.rules) {
		return false
	}
	for _, name := range l.subs {
		p := wire.JoinPath(d.dir, name)
		w.dir(fd, d, p, name, ignoredBy(d.sets, p, true, false), false)
	}
	w.known = append(w.known, l)
	return true
}

// plain notes a directory that could be remembered if its files are too many: one that
// contains only new files, and directories, that are not ignored.
func (w *walker) plain(d *walkDir, before disk.Stat, entries []disk.DirEntry, from int) {
	fresh := w.fresh[from:]
	if d.was != nil || d.inGit || d.inIgnored || len(fresh) < minSkippedDir || len(w.plains) >= maxSkippedDirs {
		return
	}
	l := &skippedDir{dir: d.dir, stat: before, files: len(fresh)}
	for _, en := range entries {
		switch en.Kind {
		case unix.DT_DIR:
			l.subs = append(l.subs, en.Name)
		case unix.DT_REG, unix.DT_LNK:
		default:
			return
		}
		if en.Name == ".git" || en.Name == ".gitignore" {
			return
		}
	}
	if len(l.subs)+len(fresh) != len(entries) {
		return // some are ignored, or vanished
	}
	for _, s := range fresh {
		l.bytes += s.Stat.Size
	}
	l.rules = rulesOf(d.sets)
	w.plains = append(w.plains, l)
}

// remember keeps the skippedDirs of heaps that were left out, and reports whether one
// that was passed over would have been taken: then it must be read.
func (s *Scanner) remember(cap *Capture, now int64) (again bool) {
	sc := cap.Scan
	skippedDirs := make(map[string]*skippedDir, len(sc.known))
	for _, l := range sc.plains {
		if cap.tooMany[heapOf(l.dir+"/.")] && l.stat.Ctime <= now-RacyWindow {
			skippedDirs[l.dir] = l
		}
	}
	for _, p := range cap.dropped {
		if l := skippedDirs[wire.ParentDir(p)]; l != nil && len(l.names) < l.files {
			l.names = append(l.names, p)
		}
	}
	for _, l := range sc.known {
		if !cap.tooMany[heapOf(l.dir+"/.")] {
			s.skippedDirs = nil
			return true
		}
		skippedDirs[l.dir] = l
		cap.drop(l.names...)
	}
	s.skippedDirs = skippedDirs
	return false
}

// drop notes paths that were left out.
func (cap *Capture) drop(paths ...string) {
	cap.dropped = append(cap.dropped, paths[:min(len(paths), max(0, maxListed-len(cap.dropped)))]...)
}
