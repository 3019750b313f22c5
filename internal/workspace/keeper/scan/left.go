package scan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const (
	// maxNotedIgnored is how many ignored paths a commit names, and maxNotedPath
	// how long each may be there.
	maxNotedIgnored = 40
	maxNotedPath    = 300
	// maxOutside is how many ignored paths an answer lists.
	maxOutside = 200
)

// outside collects what is in no checkpoint because it is ignored, and what is in one
// although it is ignored.
type outside struct {
	list   []wire.Skip
	more   int
	anyway map[string]bool
}

func (o *outside) add(p, reason string) {
	if len(o.list) >= maxListed {
		o.more++
		return
	}
	o.list = append(o.list, wire.Skip{Path: wire.Path(p), Reason: reason})
}

func (o *outside) keep(p string) {
	if o.anyway == nil {
		o.anyway = map[string]bool{}
	}
	o.anyway[p] = true
}

func byPath(a, b wire.Skip) int { return strings.Compare(string(a.Path), string(b.Path)) }

// ShownPath is a path in the form that a commit's message may contain.
func ShownPath(p wire.Path) string { return strings.ReplaceAll(p.Shown(), "\x00", "") }

// Unkept is what the newest scan of the live tree found that no checkpoint holds, for
// listings.
type Unkept struct {
	reasons map[string]string    // by path: why it could not be captured
	paths   []string             // the first of them, ignored ones too; without those of heaps
	anyway  map[string]bool      // ignored, and kept all the same
	heaps   map[string]wire.Skip // by path: folders with too much for one checkpoint
	notIn   wire.NotIn           // for commits that are made of what was scanned
	ignored []string             // the outermost of what is ignored
	more    int                  // how many more of these there are
}

func newUnkept(cap *Capture) *Unkept {
	l := &Unkept{reasons: make(map[string]string, len(cap.Skipped)+len(cap.dropped)), anyway: cap.outside.anyway, notIn: cap.NotIn()}
	l.heaps = map[string]wire.Skip{}
	for _, s := range cap.Skipped {
		switch {
		case s.Kept:
			continue
		case s.Files > 0:
			l.heaps[string(s.Path)] = s
			continue
		}
		l.reasons[string(s.Path)] = s.Reason
		l.paths = append(l.paths, string(s.Path))
	}
	for _, p := range cap.dropped {
		l.reasons[p] = l.inHeap(p)
	}
	for _, s := range cap.outside.list {
		l.ignored = append(l.ignored, string(s.Path))
	}
	l.paths, l.more = append(l.paths, l.ignored...), cap.outside.more
	return l
}

// inHeap says that a path is in a heap that was left out, "" when it isn't.
func (l *Unkept) inHeap(p string) string {
	s, ok := l.heaps[heapOf(p)]
	if !ok {
		return ""
	}
	return fmt.Sprintf("is in %s, which %s", wire.Short(string(s.Path)), s.Reason)
}

// NotInNow is the record for a commit on top of the newest scan.
func (s *Scanner) NotInNow() wire.NotIn {
	if l := s.Unkept.Load(); l != nil {
		return l.notIn
	}
	return wire.NotIn{}
}

// Ignored are the ignored paths that the newest scan met, the outermost of each, and how
// many more there are.
func (s *Scanner) Ignored() (paths []string, more int) {
	if l := s.Unkept.Load(); l != nil {
		return l.ignored, l.more
	}
	return nil, 0
}

// IsFolder reports whether a folder lies at a path of the live tree.
func (s *Scanner) IsFolder(p string) bool {
	dir, err := disk.OpenDir(s.Root, wire.ParentDir(p))
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	st, err := disk.Lstat(dir, path.Base(p))
	return err == nil && st.IsDir()
}

// MarkUnkept marks the entries of a directory that no checkpoint holds, with the reason.
// Whether they are ignored is decided now; whether they could be captured, by the last
// scan. If that can't be determined, each entry says so.
func (s *Scanner) MarkUnkept(l *Unkept, err error, dir string, files []wire.FileInfo, captured func(p string) bool) {
	var in *Place
	if err == nil {
		in, err = s.PlaceOf(dir, l)
	}
	if err != nil {
		for i := range files {
			files[i].Unkept = "may be in no checkpoint: " + fault.Answer(err)
		}
		return
	}
	beneath := map[string]int{}
	for _, p := range l.paths {
		if dir != "." {
			var ok bool
			if p, ok = strings.CutPrefix(p, dir+"/"); !ok {
				continue
			}
		}
		if name, _, deeper := strings.Cut(p, "/"); deeper {
			beneath[name]++
		}
	}
	for p, s := range l.heaps {
		rest, ok := p, dir == "."
		if !ok {
			rest, ok = strings.CutPrefix(p, dir+"/")
		}
		if name, _, _ := strings.Cut(rest, "/"); ok {
			beneath[name] += s.Files
		}
	}
	for i := range files {
		f := &files[i]
		p, isDir := string(f.Path), f.Kind == "dir"
		f.Unkept = in.Unkept(p, isDir, l)
		switch {
		case f.Unkept != "":
		case l.reasons[p] != "":
			f.Unkept = l.reasons[p]
		case !isDir && f.Kind != "file" && f.Kind != "symlink":
			f.Unkept = "is a " + f.Kind
		case !isDir && l.inHeap(p) != "" && !captured(p):
			f.Unkept = l.inHeap(p)
		case isDir:
			f.Beneath = beneath[path.Base(p)]
		}
		if f.Unkept != "" && isDir && strings.HasPrefix(f.Unkept, "is ") {
			if _, empty := peekInto(s.Root, p); empty {
				f.Unkept = "" // nothing of an empty folder is lost
			}
		}
	}
}

// Place is the effect of ignore files in one directory.
type Place struct {
	sets      []ignoreSet
	inIgnored bool
	inGit     bool
	whole     string // why nothing in it is captured
}

// Unkept says why an entry is not captured because it is ignored; "" when it is not
// ignored.
func (in *Place) Unkept(p string, isDir bool, l *Unkept) string {
	name := path.Base(p)
	switch {
	case in.whole != "":
		return in.whole
	case in.inGit, p == ".git", name == ".git" && wire.ParentDir(p) != ".", l.anyway[p]:
		return ""
	}
	return ignoredBy(in.sets, p, isDir, in.inIgnored)
}

// PlaceOf reads the ignore files from the root to a directory, as a walk does.
func (s *Scanner) PlaceOf(dir string, l *Unkept) (*Place, error) {
	in := &Place{}
	ignores := ignoreFiles{}
	at := "."
	rest := strings.Split(dir, "/")
	if dir == "." {
		rest = nil
	}
	for {
		if err := s.enter(in, &ignores, at, l); err != nil {
			return nil, err
		}
		if in.whole != "" || in.inGit || len(rest) == 0 {
			return in, nil
		}
		at, rest = wire.JoinPath(at, rest[0]), rest[1:]
	}
}

// enter descends into one directory of the path.
func (s *Scanner) enter(in *Place, ignores *ignoreFiles, dir string, l *Unkept) error {
	fd, err := disk.OpenDir(s.Root, dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if dir != "." && path.Base(dir) == ".git" {
		in.inGit = true
		return nil
	}
	var st unix.Stat_t
	git := dir != "." && unix.Fstatat(fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if dir != "." {
		if why := in.Unkept(dir, true, l); why != "" && (!git || strings.Contains(dir, "node_modules")) {
			in.whole = inIgnoredFolder
			return nil
		} else if ignoredBy(in.sets, dir, true, in.inIgnored) != "" {
			in.inIgnored = true
		}
	}
	if git {
		in.sets, in.inIgnored = nil, false
	}
	content, err := readIgnoreAt(fd)
	if err != nil {
		return nil //nolint:nilerr // a walk would not read it either
	}
	if set, ok := ignores.add(dir, content, git || scaffold(dir)); ok {
		in.sets = append(slices.Clip(in.sets), set)
	}
	return nil
}
