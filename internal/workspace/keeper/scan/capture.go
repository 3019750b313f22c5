package scan

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Capture is a walk with everything that changed hashed (and, if wanted, stored).
type Capture struct {
	Tracked map[string]Tracked // what was read and is captured, with the state in which it was seen
	Gone    []string           // captured paths that are not there any more
	held    int                // captured paths that stay, without candidates
	Changes []gitstore.Change
	Skipped []wire.Skip
	dropped []string // the first of the new paths that were too much for one checkpoint
	Ignored []string
	outside outside
	Nested  []string
	Touched []string // paths that were examined, or are gone
	Scan    *Walk
	tooMany map[string]bool // folders that were left out for the number of their files
}

// Candidate is a file, link or empty directory that differs from what was captured.
type Candidate struct {
	Path string
	Stat disk.Stat
	Prev Tracked
	// Written says that somebody had it open for writing when it was read: a store to memory
	// that it is mapped to changes what it holds, and no time of it.
	Written bool
}

// Scan walks the live tree and finds what may differ from HEAD and is within the limits;
// write says that it is to be stored, now is the file system's time before the walk.
func (s *Scanner) Scan(ctx context.Context, now int64, write bool) (*Capture, []Candidate, error) {
	s.expected, s.watchCovers = nil, false
	if cap, cands, ok := s.scanDirty(ctx); ok && ctx.Value(fullKey{}) == nil {
		cands, err := s.choose(cap, cands, write)
		return cap, cands, err
	} else if ok && s.known.watched {
		s.expect(cap, cands)
	}
	s.Invalidate()
	for {
		cap, cands, err := s.scanAll(ctx, write)
		if err != nil {
			return nil, nil, err
		}
		if !s.remember(cap, now) {
			if !cap.Scan.all { // such a walk does not evaluate ignore files, so the next one has to
				s.found(stillOf(ctx).name, cap)
			}
			return cap, cands, nil
		}
	}
}

func (s *Scanner) scanAll(ctx context.Context, write bool) (*Capture, []Candidate, error) {
	sc, err := s.scanTree(ctx)
	if err != nil {
		return nil, nil, err
	}
	cap := &Capture{Tracked: map[string]Tracked{}, held: sc.same, Skipped: sc.skipped, Ignored: sc.ignored, outside: sc.outside, Nested: sc.nested, Scan: sc}
	cap.Gone = s.missing(sc)
	cands := make([]Candidate, 0, len(sc.fresh))
	cands, err = s.choose(cap, append(cands, sc.fresh...), write)
	return cap, cands, err
}

// choose removes from the candidates what is not to be captured.
func (s *Scanner) choose(cap *Capture, cands []Candidate, write bool) ([]Candidate, error) {
	cands, err := s.without(cap, cands, write)
	if err != nil {
		return nil, err
	}
	cands = s.guard(cap, cands)
	for _, c := range cands {
		cap.Touched = append(cap.Touched, c.Path)
	}
	cap.Touched = append(cap.Touched, cap.Gone...)
	return cands, nil
}

// Capture scans the live tree and finds what differs from HEAD; write says whether new
// content is stored.
func (s *Scanner) Capture(ctx context.Context, write bool) (*Capture, error) {
	now, err := s.FileClock()
	if err != nil {
		return nil, err
	}
	cap, cands, err := s.Scan(ctx, now, write)
	if err != nil {
		return nil, err
	}
	files := cands[:0]
	for _, c := range cands {
		if c.Stat.IsDir() {
			cap.put(c, gitstore.Entry{Mode: wire.ModeEmptyDir}, 0)
			continue
		}
		files = append(files, c)
	}
	if err := s.hashCandidates(ctx, cap, files, now, write); err != nil {
		return nil, err
	}
	for _, c := range files { // files that were removed before they could be read
		if _, ok := cap.Tracked[c.Path]; !ok && c.Prev.Exists() && !cap.Scan.keeps(c.Path) {
			cap.Gone = append(cap.Gone, c.Path)
		}
	}
	for _, p := range cap.Gone {
		cap.Changes = append(cap.Changes, gitstore.Change{Path: p, From: s.Index.At(p).Entry, To: gitstore.None})
	}
	slices.SortFunc(cap.Changes, func(a, b gitstore.Change) int { return gitstore.ComparePaths(a.Path, b.Path) })
	slices.SortFunc(cap.Skipped, byPath)
	slices.SortFunc(cap.outside.list, byPath)
	s.compare(cap)
	s.settled(cap)
	s.Unkept.Store(newUnkept(cap))
	return cap, nil
}

// RacyWindow is how soon after a file's change its times prove nothing: file system
// clocks have a resolution, and a second change within one tick leaves no trace.
const RacyWindow = int64(50e6) // ns

// FileClock returns the file system's own time, which may differ from ours.
func (s *Scanner) FileClock() (int64, error) {
	var st unix.Stat_t
	// Setting any time sets the change time by the file system's clock.
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, s.store.Work("lock"), []unix.Timespec{{}, {}}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	err := unix.Lstat(s.store.Work("lock"), &st)
	return st.Ctim.Nano(), err
}

// hashCandidates finds the blob of every candidate and stores new ones.
func (s *Scanner) hashCandidates(ctx context.Context, cap *Capture, cands []Candidate, now int64, write bool) error {
	slices.SortFunc(cands, func(a, b Candidate) int {
		if la, lb := nested.IsObject(a.Path), nested.IsObject(b.Path); la != lb {
			return map[bool]int{true: 1, false: -1}[la]
		}
		return gitstore.ComparePaths(a.Path, b.Path)
	})
	var todo []Candidate
	for _, c := range cands {
		if err := ctx.Err(); err != nil {
			return err
		}
		if write && s.store.Chunked(c.Stat) && c.Prev.Chunked {
			if still, err := s.isStill(&c); err != nil {
				return err
			} else if still {
				cap.put(c, gitstore.Entry{Mode: c.Stat.GitMode(), ID: c.Prev.ID, Chunked: true}, now)
				continue
			}
		}
		if write && (!c.Prev.Exists() || s.store.Chunked(c.Stat)) { // storing a large file hashes it too
			todo = append(todo, c)
			continue
		}
		if differs, err := s.surelyDiffers(ctx, c); err != nil {
			return err
		} else if differs {
			cap.put(c, gitstore.Entry{Mode: c.Stat.GitMode(), Chunked: true}, 0)
			continue
		}
		en, err := s.hashFile(&c)
		switch {
		case errors.Is(err, disk.ErrGone) && !write:
			continue
		case err == nil && c.Prev.Exists() && en.Holds() == c.Prev.Holds():
			cap.put(c, en, now)
		case err == nil && !write:
			cap.put(c, en, 0)
		case err == nil || errors.Is(err, disk.ErrGone):
			todo = append(todo, c)
		default:
			if !cap.unreadable(c, err) {
				return err
			}
		}
	}
	if !write || len(todo) == 0 {
		return nil
	}
	return s.keep(ctx, cap, todo, now)
}

// keep stores the content of candidates. If one changes meanwhile, its last captured
// content stays.
func (s *Scanner) keep(ctx context.Context, cap *Capture, todo []Candidate, now int64) error {
	refused := make([]error, len(todo))
	contents := make([]objects.Object, len(todo))
	stored := make([]gitstore.Entry, len(todo))
	for i := range todo {
		contents[i] = s.store.ContentObject(ctx, &stored[i], &refused[i], func() (io.ReadCloser, disk.Stat, error) {
			r, st, err := s.openContent(&todo[i], s.limits.LargestFile)
			if err == nil {
				todo[i].Stat = st
			}
			return r, st, err
		})
	}
	ids, err := s.store.Write(ctx, contents)
	if err != nil {
		return err
	}
	for i, c := range todo {
		switch {
		case ids[i] != "":
			stored[i].ID = ids[i]
			cap.put(c, stored[i], now)
		case refused[i] == nil || errors.Is(refused[i], disk.ErrGone) || disk.IsGone(refused[i]):
			// Shrunk or gone under our hands. A file that is being written to
			// keeps what was captured of it; the next checkpoint scans again.
			if _, err := s.Lstat(c.Path); err == nil {
				cap.Skipped = append(cap.Skipped, wire.Skip{Path: wire.Path(c.Path), Reason: "was changing while it was read"})
				if c.Prev.Exists() {
					c.Prev.Stat = disk.Stat{}
					cap.Tracked[c.Path] = c.Prev
				}
			}
		default:
			if !cap.unreadable(c, refused[i]) {
				return refused[i]
			}
		}
	}
	return nil
}

// put records a candidate's content. Its state is trusted next time only if it is old
// enough for a later change to show, and such a change would show in it.
func (cap *Capture) put(c Candidate, en gitstore.Entry, now int64) {
	if c.Written || c.Stat.Ctime > now-RacyWindow {
		c.Stat = disk.Stat{}
	}
	cap.Tracked[c.Path] = Tracked{en, c.Stat}
	if en != c.Prev.Entry {
		cap.Changes = append(cap.Changes, gitstore.Change{Path: c.Path, From: c.Prev.Entry, To: en})
	}
}

// unreadable skips a file whose permissions exclude even its owner.
func (cap *Capture) unreadable(c Candidate, err error) bool {
	reason := "can't be read"
	switch {
	case errors.Is(err, chunks.ErrQuota):
		reason = chunks.ErrQuota.Error()
	case fault.Is(err, fault.Exhausted):
		reason = "grew too large while it was read"
	case !disk.IsDenied(err):
		return false
	}
	cap.Skipped = append(cap.Skipped, wire.Skip{Path: wire.Path(c.Path), Reason: reason})
	if c.Prev.Exists() {
		cap.Tracked[c.Path] = Tracked{c.Prev.Entry, disk.Stat{}}
	}
	return true
}

// Lstat is the state of a path of the tree; a link is not followed.
func (s *Scanner) Lstat(p string) (disk.Stat, error) {
	dir, err := disk.OpenDir(s.Root, wire.ParentDir(p))
	if err != nil {
		return disk.Stat{}, err
	}
	defer unix.Close(dir)
	return disk.Lstat(dir, path.Base(p))
}

// openContent opens the content of a candidate: a file's bytes or a link's target. Before
// anything is read it finds out whether somebody may write to the file in ways that leave
// its state unchanged.
func (s *Scanner) openContent(c *Candidate, max int64) (io.ReadCloser, disk.Stat, error) {
	r, st, err := disk.OpenContent(s.Root, c.Path, max)
	if f, is := r.(*os.File); err == nil && is {
		c.Written = !disk.Unwritten(f)
	}
	return r, st, err
}

// surelyDiffers reports whether a large file differs from what was captured of it, if its
// size already shows that.
func (s *Scanner) surelyDiffers(ctx context.Context, c Candidate) (bool, error) {
	if !s.store.Chunked(c.Stat) || !c.Prev.Chunked {
		return s.store.Chunked(c.Stat), nil
	}
	m, err := s.store.Manifest(ctx, c.Prev.ID)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Damaged) {
		return false, nil // a scrub tells of it
	}
	return err == nil && m.Size != c.Stat.Size, err
}

// isStill reports whether a large file still has the content that was captured.
func (s *Scanner) isStill(c *Candidate) (bool, error) {
	r, st, err := s.openContent(c, -1)
	if err != nil {
		return false, nil //nolint:nilerr // whoever stores it says so
	}
	_, is, err := s.store.IsOneOf(r, st, []gitstore.Entry{c.Prev.Entry})
	if errors.Is(err, disk.ErrGone) {
		err = nil // it is being written to
	}
	return is && st == c.Stat, errors.Join(err, r.Close())
}

// hashFile returns the entry of a candidate, provided that it is still in the state that
// was seen.
func (s *Scanner) hashFile(c *Candidate) (gitstore.Entry, error) {
	r, st, err := s.openContent(c, -1)
	if err != nil {
		if disk.IsGone(err) {
			err = disk.ErrGone
		}
		return gitstore.None, err
	}
	defer r.Close()
	if st != c.Stat {
		return gitstore.None, disk.ErrGone // changed since the walk: read again, and stored
	}
	return s.store.HashEntry(r, st)
}

// LeftOut is what a capture left out; of ignored paths only those under a directory.
func (cap *Capture) LeftOut(under string) wire.LeftOut {
	out := wire.LeftOut{Left: cap.Skipped, Total: wire.CountFiles(cap.Skipped)}
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

// NotIn is what a commit records of what a capture left out.
func (cap *Capture) NotIn() wire.NotIn {
	n := wire.NotIn{SkippedFiles: wire.CountFiles(cap.Skipped), IgnoredCount: len(cap.outside.list) + cap.outside.more}
	for _, s := range cap.Skipped[:min(len(cap.Skipped), wire.MaxSkips)] {
		n.Skipped = append(n.Skipped, ShownPath(s.Path)+": "+s.Reason)
	}
	for _, s := range cap.outside.list[:min(len(cap.outside.list), maxNotedIgnored)] {
		p := ShownPath(s.Path)
		if len(p) > maxNotedPath {
			p = strings.ToValidUTF8(p[:maxNotedPath], "") + "…"
		}
		n.IgnoredPaths = append(n.IgnoredPaths, p)
	}
	return n
}

// SameLeft reports whether a commit records the same files that could not be captured,
// whatever the reasons. Ignored ones alone make no new commit.
func (cap *Capture) SameLeft(n wire.NotIn) bool {
	now := cap.NotIn()
	if now.SkippedFiles != n.SkippedFiles || len(now.Skipped) != len(n.Skipped) {
		return false
	}
	for i, s := range n.Skipped {
		if !strings.HasPrefix(s, ShownPath(cap.Skipped[i].Path)+": ") {
			return false
		}
	}
	return true
}

// Takes reports whether a file fits with those that a capture has already, whose folders
// are given, and adds its own folders to these.
func (cap *Capture) Takes(folders map[string]bool, p string) bool {
	if _, has := cap.Tracked[p]; has || folders[p] {
		return false
	}
	for dir := wire.ParentDir(p); dir != "."; dir = wire.ParentDir(dir) {
		if _, has := cap.Tracked[dir]; has {
			return false
		}
	}
	for dir := wire.ParentDir(p); dir != "." && !folders[dir]; dir = wire.ParentDir(dir) {
		folders[dir] = true
	}
	return true
}
