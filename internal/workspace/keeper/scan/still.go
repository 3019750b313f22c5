package scan

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// The whole tree has to be scanned only when somebody other than the engine could have
// written to it since the last scan. Whoever opens the boxes knows that, and says it with
// each request: a stillness is the name of a period that began when the last program that
// could write ended, and lasts until one begins. Within the same stillness the tree differs
// from what a scan found only in what the engine itself did, which it records before doing
// it. Requests that name no stillness, or another one, have the whole tree scanned, unless
// watches report what was written since; so has the first request after the engine's start.

type stillKey struct{}

// stillness is what a request says about who could write.
type stillness struct {
	name string
	at   time.Time // when it held surely: it was named after that
}

// writersWatched says that somebody who can write is running, but only in ways that watches report.
func (s stillness) writersWatched() bool { return s.name == wire.WritersWatched }

type fullKey struct{}

// WithStill is a context in which scans are made under a stillness; "" for none. It is
// made when the stillness is named.
func WithStill(ctx context.Context, still string) context.Context {
	return WithStillSince(ctx, still, time.Now())
}

// WithStillSince is WithStill of a stillness that was named at some time after at. Who names
// it is elsewhere, and what they sent may have been under way for as long as it likes.
func WithStillSince(ctx context.Context, still string, at time.Time) context.Context {
	return context.WithValue(ctx, stillKey{}, stillness{still, at})
}

type allKey struct{}

// WithAll is a context in which nothing is ignored and no amount of new bytes is too much:
// another computer's checkpoint contained the tree.
func WithAll(ctx context.Context) context.Context {
	return context.WithValue(WithFullScan(ctx), allKey{}, true)
}

// WithFullScan is a context in which the whole tree is scanned, whatever is known.
func WithFullScan(ctx context.Context) context.Context {
	return context.WithValue(ctx, fullKey{}, true)
}

type watchesKey struct{}

// WithWatches is a context in which a full scan may set so many watches.
func WithWatches(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, watchesKey{}, n)
}

type watchedKey struct{}

// WithScope is a context in which the whole tree is scanned: with full, whatever is known;
// with hostWatched, unless what programs on the host may have written was watched too.
func WithScope(ctx context.Context, full, hostWatched bool) context.Context {
	switch {
	case full:
		return WithFullScan(ctx)
	case hostWatched:
		return context.WithValue(ctx, watchedKey{}, true)
	}
	return ctx
}

func stillOf(ctx context.Context) stillness {
	still, _ := ctx.Value(stillKey{}).(stillness)
	return still
}

// known is what is known about the tree without scanning it.
type known struct {
	still string          // since when nobody else could write; "": nothing is known
	walk  *Walk           // the result of the last full scan
	dirty map[string]bool // paths that may differ from the index
	// watched says that the watch reports what somebody else has written since.
	watched bool
	// alone says that nobody began to write during the last full scan, which was
	// over at ended: a request that came later named the same stillness. Before
	// all directories are watched, what is written through another name goes unseen.
	alone bool
	ended time.Time
}

// maxDirty is how many paths are examined one by one.
const maxDirty = 5000

// Wrote says that the engine writes to a path, and makes or removes folders on
// the way. It is said before, and what comes there is a file, a link, an empty
// folder or nothing.
func (s *Scanner) Wrote(p string) {
	if s.known.dirty == nil {
		return
	}
	s.known.dirty[p] = true
	if f := s.Index.Folder(p); f != nil { // another folder may come in its place
		f.Each(p, func(q string, _ *Leaf) bool { s.known.dirty[q] = true; return true })
	}
}

// Invalidate has the next scan be one of the whole tree, which may have changed in ways that
// nobody wrote down.
func (s *Scanner) Invalidate() { s.known = known{} }

// found notes what a full scan found.
func (s *Scanner) found(still string, cap *Capture) {
	s.known, s.Index.changed = known{}, nil
	w := cap.Scan
	if still == "" || still == wire.WritersWatched && !s.watchCovers || len(cap.Skipped) > 0 || len(cap.dropped) > 0 || len(w.kept) > 0 || len(w.known) > 0 {
		return // what is left out is judged anew each time
	}
	s.known = known{still: still, walk: w, dirty: map[string]bool{}, watched: s.watch.Lost() == "", alone: s.watchCovers, ended: time.Now()}
	for _, p := range cap.Touched {
		s.known.dirty[p] = true
	}
}

// IgnoredNow are the directories that are left out because they are ignored.
func (s *Scanner) IgnoredNow(ctx context.Context, now int64) ([]string, error) {
	cap, _, err := s.Scan(ctx, now, false)
	if err != nil {
		return nil, err
	}
	return cap.Ignored, nil
}

// settled forgets what a capture found to be as the index says.
func (s *Scanner) settled(cap *Capture) {
	if s.known.still == "" {
		return
	}
	if len(cap.Skipped) > 0 {
		s.Invalidate()
		return
	}
	differs := map[string]bool{}
	for _, c := range cap.Changes {
		differs[c.Path] = true
	}
	maps.DeleteFunc(s.known.dirty, func(p string, _ bool) bool { return !differs[p] })
}

// scanDirty examines what may have changed since the last scan, and nothing else. It
// reports false where only a full scan can tell.
func (s *Scanner) scanDirty(ctx context.Context) (*Capture, []Candidate, bool) {
	still := stillOf(ctx)
	if still.name == "" || s.Unkept.Load() == nil || s.may() != nil || !s.knows(still, ctx.Value(watchedKey{}) != nil || ctx.Value(fullKey{}) != nil) {
		return nil, nil, false
	}
	for p := range s.Index.changed {
		s.known.dirty[p] = true
	}
	s.Index.changed = nil
	if len(s.known.dirty) > maxDirty {
		return nil, nil, false
	}
	g := dirtyScan{scanner: s, left: s.Unkept.Load(), seen: map[string]bool{}, gone: map[string]bool{}, places: map[string]*Place{}}
	for p := range s.known.dirty {
		if !g.examine(p) {
			return nil, nil, false
		}
	}
	s.known.still = still.name
	w := s.known.walk
	cap := &Capture{
		Tracked: map[string]Tracked{}, Gone: slices.Collect(maps.Keys(g.gone)), Ignored: w.ignored, outside: w.outside, Nested: w.nested,
		Scan: &Walk{NamesRead: len(g.seen)},
	}
	cap.held = s.Index.Count - len(cap.Gone)
	for _, c := range g.cands {
		if c.Prev.Exists() {
			cap.held--
		}
	}
	return cap, g.cands, true
}

// dirtyScan is a scan of some paths.
type dirtyScan struct {
	scanner *Scanner
	left    *Unkept
	seen    map[string]bool
	gone    map[string]bool // captured paths that are not there any more
	cands   []Candidate
	places  map[string]*Place
}

// examine examines one path and the folders above it, and reports false where that does not
// tell enough.
func (g *dirtyScan) examine(p string) bool {
	if p == "." || g.seen[p] {
		return true
	}
	g.seen[p] = true
	if strings.Contains("/"+p+"/", "/.git/") || path.Base(p) == ".gitignore" || len(p) > wire.MaxTreePath {
		return false // what a repository, or an ignore file, says of others
	}
	in, ok := g.place(wire.ParentDir(p))
	if !ok || in.Unkept(p, false, g.left) != "" || in.Unkept(p, true, g.left) != "" {
		return false
	}
	st, err := g.scanner.Lstat(p)
	leaf := g.scanner.Index.Leaf(p)
	switch {
	case disk.IsGone(err):
		if leaf != nil {
			g.gone[p] = true
		}
		g.goneBelow(p)
	case err != nil:
		return false
	case st.IsDir():
		git, empty := peekInto(g.scanner.Root, p)
		switch {
		case git:
			return false
		case empty:
			g.goneBelow(p)
			g.candidate(p, st, leaf)
		case leaf != nil:
			g.gone[p] = true
		}
	case st.IsRegular() || st.IsSymlink():
		g.goneBelow(p)
		g.candidate(p, st, leaf)
	default:
		return false
	}
	return g.examine(wire.ParentDir(p))
}

func (g *dirtyScan) candidate(p string, st disk.Stat, leaf *Leaf) {
	var prev Tracked
	if leaf != nil {
		prev = leaf.Tracked
		if prev.Stat == st && !st.IsDir() || st.IsDir() && prev.Mode == wire.ModeEmptyDir {
			return
		}
	}
	g.cands = append(g.cands, Candidate{Path: p, Stat: st, Prev: prev})
}

// goneBelow notes that nothing is beneath a path any more.
func (g *dirtyScan) goneBelow(p string) {
	if f := g.scanner.Index.Folder(p); f != nil {
		f.Each(p, func(q string, _ *Leaf) bool { g.gone[q] = true; return true })
	}
}

// place is what ignore files say in a folder; in one that is gone, what they say
// of it.
func (g *dirtyScan) place(dir string) (*Place, bool) {
	if in, ok := g.places[dir]; ok {
		return in, in != nil
	}
	in, err := g.scanner.PlaceOf(dir, g.left)
	if disk.IsGone(err) && dir != "." {
		var ok bool
		if in, ok = g.place(wire.ParentDir(dir)); ok && in.Unkept(dir, true, g.left) != "" {
			in = nil
		}
	} else if err != nil || in.inGit {
		in = nil
	}
	g.places[dir] = in
	return in, in != nil
}
