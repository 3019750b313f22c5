package engine

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// What no checkpoint holds is said: by the checkpoint, by what asked for it, and
// by each listing of files.

const (
	// maxNotedIgnored is how many ignored paths a commit names, and maxNotedPath
	// how long each may be there.
	maxNotedIgnored = 40
	maxNotedPath    = 300
	// maxOutside is how many ignored paths an answer lists.
	maxOutside = 200
)

// outside collects what is in no checkpoint because it is ignored, and what is
// in one although it is.
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

// leftOut is what a capture left out, of what is ignored only what is under a
// directory.
func (cap *capture) leftOut(under string) wire.LeftOut {
	out := wire.LeftOut{Left: cap.skipped, Total: wire.CountFiles(cap.skipped)}
	for _, s := range cap.outside.list {
		if !wire.IsUnder(string(s.Path), under) {
			continue
		}
		if out.Outside++; len(out.Ignored) < maxOutside {
			out.Ignored = append(out.Ignored, s)
		}
	}
	if under == "" {
		out.Outside += cap.outside.more
	}
	return out
}

// notIn is what a commit says of what a capture left out.
func (cap *capture) notIn() wire.NotIn {
	n := wire.NotIn{SkippedFiles: wire.CountFiles(cap.skipped), IgnoredCount: len(cap.outside.list) + cap.outside.more}
	for _, s := range cap.skipped[:min(len(cap.skipped), maxSkips)] {
		n.Skipped = append(n.Skipped, shownPath(s.Path)+": "+s.Reason)
	}
	for _, s := range cap.outside.list[:min(len(cap.outside.list), maxNotedIgnored)] {
		p := shownPath(s.Path)
		if len(p) > maxNotedPath {
			p = strings.ToValidUTF8(p[:maxNotedPath], "") + "…"
		}
		n.IgnoredPaths = append(n.IgnoredPaths, p)
	}
	return n
}

// sameLeft reports whether a commit tells of the same files that could not be
// taken, whatever the reasons. What is ignored makes no commit of its own.
func (cap *capture) sameLeft(n wire.NotIn) bool {
	now := cap.notIn()
	if now.SkippedFiles != n.SkippedFiles || len(now.Skipped) != len(n.Skipped) {
		return false
	}
	for i, s := range n.Skipped {
		if !strings.HasPrefix(s, shownPath(cap.skipped[i].Path)+": ") {
			return false
		}
	}
	return true
}

func shownPath(p wire.Path) string { return strings.ReplaceAll(p.Shown(), "\x00", "") }

// left is what the newest look at the live tree found of it that no checkpoint
// holds, for listings.
type left struct {
	reasons map[string]string    // by path: what could not be taken
	paths   []string             // the first of them, ignored ones too; without those of heaps
	anyway  map[string]bool      // ignored, and kept all the same
	heaps   map[string]wire.Skip // by path: folders with too much for one checkpoint
	notIn   wire.NotIn           // for commits that are made of what was looked at
}

func newLeft(cap *capture) *left {
	l := &left{reasons: make(map[string]string, len(cap.skipped)+len(cap.dropped)), anyway: cap.outside.anyway, notIn: cap.notIn()}
	l.heaps = map[string]wire.Skip{}
	for _, s := range cap.skipped {
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
		l.paths = append(l.paths, string(s.Path))
	}
	return l
}

// inHeap says of a path that it is in a heap that was left out, "" when it isn't.
func (l *left) inHeap(p string) string {
	s, ok := l.heaps[heapOf(p)]
	if !ok {
		return ""
	}
	return fmt.Sprintf("is in %s, which %s", wire.Short(string(s.Path)), s.Reason)
}

// notInNow is what a commit on top of the newest look at the tree says.
func (e *Engine) notInNow() wire.NotIn {
	if l := e.left.Load(); l != nil {
		return l.notIn
	}
	return wire.NotIn{}
}

// lastLeft returns what the newest look at the tree left out, and looks if
// nobody did yet.
func (e *Engine) lastLeft(ctx context.Context) (*left, error) {
	if l := e.left.Load(); l != nil {
		return l, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.left.Load(); l != nil {
		return l, nil
	}
	if _, err := e.capture(ctx, false); err != nil {
		return nil, err
	}
	return e.left.Load(), nil
}

// markUnkept says of entries of a directory why no checkpoint holds them. What
// is ignored is decided now; what could not be taken, when it was last tried.
// Where that can't be looked at, each entry says so.
func (e *Engine) markUnkept(ctx context.Context, dir string, files []wire.FileInfo) {
	if len(files) == 0 {
		return
	}
	l, err := e.lastLeft(ctx)
	var in *place
	if err == nil {
		in, err = e.placeOf(dir, l)
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
		f.Unkept = in.unkept(p, isDir, l)
		switch {
		case f.Unkept != "":
		case l.reasons[p] != "":
			f.Unkept = l.reasons[p]
		case !isDir && f.Kind != "file" && f.Kind != "symlink":
			f.Unkept = "is a " + f.Kind
		case !isDir && l.inHeap(p) != "" && !e.lastSeen(p).Exists():
			f.Unkept = l.inHeap(p)
		case isDir:
			f.Beneath = beneath[path.Base(p)]
		}
		if f.Unkept != "" && isDir && strings.HasPrefix(f.Unkept, "is ") {
			if _, empty := lookInto(e.rootFD, p); empty {
				f.Unkept = "" // an empty folder loses nothing
			}
		}
	}
}

// place is what ignore files say of a directory's entries.
type place struct {
	sets      []ignoreSet
	inIgnored bool
	inGit     bool
	whole     string // why nothing in it is kept
}

// unkept says why an entry is not kept because it is ignored; "" when it is.
func (in *place) unkept(p string, isDir bool, l *left) string {
	name := path.Base(p)
	switch {
	case in.whole != "":
		return in.whole
	case in.inGit, p == ".git", name == ".git" && wire.ParentDir(p) != ".", l.anyway[p]:
		return ""
	}
	return ignoredBy(in.sets, p, isDir, in.inIgnored)
}

// placeOf reads the ignore files from the root to a directory, as a walk does.
func (e *Engine) placeOf(dir string, l *left) (*place, error) {
	in := &place{}
	ignores := ignoreFiles{}
	at := "."
	rest := strings.Split(dir, "/")
	if dir == "." {
		rest = nil
	}
	for {
		if err := e.enter(in, &ignores, at, l); err != nil {
			return nil, err
		}
		if in.whole != "" || in.inGit || len(rest) == 0 {
			return in, nil
		}
		at, rest = wire.JoinPath(at, rest[0]), rest[1:]
	}
}

// enter goes into one directory of the way.
func (e *Engine) enter(in *place, ignores *ignoreFiles, dir string, l *left) error {
	fd, err := disk.OpenDir(e.rootFD, dir)
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
		if why := in.unkept(dir, true, l); why != "" && (!git || strings.Contains(dir, "node_modules")) {
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
		return nil //nolint:nilerr // there is none that a walk would read
	}
	if set, ok := ignores.add(dir, content, git || scaffold(dir)); ok {
		in.sets = append(slices.Clip(in.sets), set)
	}
	return nil
}
