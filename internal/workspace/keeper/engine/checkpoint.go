package engine

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Checkpoint commits the live tree as it is: everything but what is ignored and
// was never captured. When nothing changed, and it leaves out what the newest
// checkpoint does, it returns that one.
// The commit is on disk when it returns.
func (e *Engine) Checkpoint(ctx context.Context, req wire.CheckpointRequest) (wire.CheckpointReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return wire.CheckpointReply{}, fault.Wrap("keeper.Checkpoint", err)
	}
	reply, err := e.checkpoint(ctx, req)
	return reply, fault.Wrap("keeper.Checkpoint", err)
}

func (e *Engine) checkpoint(ctx context.Context, req wire.CheckpointRequest) (wire.CheckpointReply, error) {
	if err := e.lookAtDisplaced(ctx); err != nil {
		return wire.CheckpointReply{}, err
	}
	var reply wire.CheckpointReply
	err := e.store.Together(func(flush func() error) (err error) {
		reply, err = e.checkpointTogether(ctx, req, flush)
		return err
	})
	return reply, err
}

func (e *Engine) checkpointTogether(ctx context.Context, req wire.CheckpointRequest, flush func() error) (_ wire.CheckpointReply, err error) {
	cap, err := e.captureWithPuts(ctx, req.Note, flush)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	// Before the commit counts, what it holds is on disk in the live tree too.
	if err := e.syncPaths(cap.touched); err != nil {
		return wire.CheckpointReply{}, err
	}
	if len(cap.changes) == 0 && !req.Force && e.head != "" {
		c, err := e.store.Commit(ctx, e.head)
		// A file that can't be taken is news for whoever looks at the history.
		if err != nil || cap.sameLeft(c.NotIn) {
			e.tracked.take(cap)
			if err = errors.Join(err, flush()); err != nil {
				return wire.CheckpointReply{}, err
			}
			return wire.CheckpointReply{Commit: c, Puts: e.putsKept(), Looked: cap.scan.looked, LeftOut: cap.leftOut(string(req.Under))}, nil
		}
	}
	e.crash("checkpoint.captured")
	undo := e.tracked.take(cap)
	defer func() {
		if err != nil {
			undo()
		}
	}()
	tree, err := e.tracked.write(ctx, e.store)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	req.Files = len(cap.changes)
	req.NotIn = cap.notIn()
	if req.Verified, err = e.verified(ctx, req.Verified, ""); err != nil {
		return wire.CheckpointReply{}, err
	}
	if req.Kind == "" || e.head == "" {
		req.Kind = map[bool]string{true: "initial", false: "auto"}[e.head == ""]
	}
	c, err := e.makeCommit(ctx, tree, e.head, req.Note)
	if err != nil {
		return wire.CheckpointReply{}, err
	}
	if err := flush(); err != nil {
		return wire.CheckpointReply{}, err
	}
	e.crash("commit.written")
	if err := e.advance(c); err != nil {
		return wire.CheckpointReply{}, err
	}
	return wire.CheckpointReply{Commit: c, Created: true, Puts: e.putsKept(), Looked: cap.scan.looked, LeftOut: cap.leftOut(string(req.Under))}, nil
}

// advance moves HEAD to a commit on top of it.
func (e *Engine) advance(c wire.Commit) error {
	if err := e.store.MoveMain(c.Commit); err != nil {
		return err
	}
	e.head, e.tree = c.Commit, c.Tree
	e.crash("commit.done")
	return nil
}

func (e *Engine) makeCommit(ctx context.Context, tree, parent string, note wire.Note) (wire.Commit, error) {
	return e.store.MakeCommit(ctx, tree, parent, note, e.opts.Now().UnixMilli())
}

// capture is a walk with everything that changed hashed (and written).
type capture struct {
	tracked map[string]tracked // what was looked into and is held, with the state it was seen in
	gone    []string           // captured paths that are not there any more
	held    int                // captured paths that stay, without candidates
	changes []gitstore.Change
	skipped []wire.Skip
	dropped []string // new paths of what was too much for one checkpoint, the first of them
	ignored []string
	outside outside
	nested  []string
	touched []string // paths that were looked into, or are gone
	scan    *scan
	tooMany map[string]bool // heaps that were left out for the number of their files
}

type candidate struct {
	path string
	stat disk.Stat
	prev tracked
}

// look walks the live tree and finds what may differ from HEAD and is within the
// limits; write says that it is to be stored, now is the file system's time before.
func (e *Engine) look(ctx context.Context, now int64, write bool) (*capture, []candidate, error) {
	for {
		cap, cands, err := e.lookOnce(ctx, write)
		if err != nil || !e.remember(cap, now) {
			return cap, cands, err
		}
	}
}

func (e *Engine) lookOnce(ctx context.Context, write bool) (*capture, []candidate, error) {
	sc, err := e.scanTree(ctx)
	if err != nil {
		return nil, nil, err
	}
	cap := &capture{tracked: map[string]tracked{}, held: sc.same, skipped: sc.skipped, ignored: sc.ignored, outside: sc.outside, nested: sc.nested, scan: sc}
	cap.gone = e.missing(sc)
	cands := make([]candidate, 0, len(sc.fresh))
	for _, s := range sc.fresh {
		cands = append(cands, candidate(s))
	}
	if cands, err = e.withoutDoubted(cap, cands, write); err != nil {
		return nil, nil, err
	}
	cands = e.guard(cap, cands)
	for _, c := range cands {
		cap.touched = append(cap.touched, c.path)
	}
	cap.touched = append(cap.touched, cap.gone...)
	return cap, cands, nil
}

// capture looks at the live tree and finds what differs from HEAD; write says
// whether new content is stored.
func (e *Engine) capture(ctx context.Context, write bool) (*capture, error) {
	now, err := e.fileClock()
	if err != nil {
		return nil, err
	}
	cap, cands, err := e.look(ctx, now, write)
	if err != nil {
		return nil, err
	}
	files := cands[:0]
	for _, c := range cands {
		if c.stat.IsDir() {
			cap.put(c, gitstore.Entry{Mode: wire.ModeEmptyDir}, 0)
			continue
		}
		files = append(files, c)
	}
	if err := e.hashCandidates(ctx, cap, files, now, write); err != nil {
		return nil, err
	}
	for _, c := range files { // what was gone before it could be read
		if _, ok := cap.tracked[c.path]; !ok && c.prev.Exists() && !cap.scan.keeps(c.path) {
			cap.gone = append(cap.gone, c.path)
		}
	}
	for _, p := range cap.gone {
		cap.changes = append(cap.changes, gitstore.Change{Path: p, From: e.tracked.at(p).Entry, To: gitstore.None})
	}
	slices.SortFunc(cap.changes, func(a, b gitstore.Change) int { return gitstore.ComparePaths(a.Path, b.Path) })
	slices.SortFunc(cap.skipped, byPath)
	slices.SortFunc(cap.outside.list, byPath)
	e.left.Store(newLeft(cap))
	return cap, nil
}

// racyWindow is how close to a file's change a look at it is not proof: file
// system clocks tick, and a second change within one tick leaves no trace.
const racyWindow = int64(50e6) // ns

// fileClock returns the file system's own time, which need not be ours.
func (e *Engine) fileClock() (int64, error) {
	var st unix.Stat_t
	// Setting a time, whichever, stamps the change time with the clock's.
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, e.store.Work("lock"), []unix.Timespec{{}, {}}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	err := unix.Lstat(e.store.Work("lock"), &st)
	return st.Ctim.Nano(), err
}

// hashCandidates finds the blob of every candidate and stores new ones.
func (e *Engine) hashCandidates(ctx context.Context, cap *capture, cands []candidate, now int64, write bool) error {
	slices.SortFunc(cands, func(a, b candidate) int {
		if la, lb := gitstore.IsRepositoryObject(a.path), gitstore.IsRepositoryObject(b.path); la != lb {
			return map[bool]int{true: 1, false: -1}[la]
		}
		return gitstore.ComparePaths(a.path, b.path)
	})
	var todo []candidate
	for _, c := range cands {
		if err := ctx.Err(); err != nil {
			return err
		}
		if write && e.store.Chunked(c.stat) && c.prev.Chunked {
			if still, err := e.isStill(c); err != nil {
				return err
			} else if still {
				cap.put(c, gitstore.Entry{Mode: c.stat.GitMode(), ID: c.prev.ID, Chunked: true}, now)
				continue
			}
		}
		if write && (!c.prev.Exists() || e.store.Chunked(c.stat)) { // to store a large file is to hash it
			todo = append(todo, c)
			continue
		}
		if differs, err := e.surelyDiffers(ctx, c); err != nil {
			return err
		} else if differs {
			cap.put(c, gitstore.Entry{Mode: c.stat.GitMode(), Chunked: true}, 0)
			continue
		}
		en, err := e.hashFile(c.path, c.stat)
		switch {
		case errors.Is(err, disk.ErrGone) && !write:
			continue
		case err == nil && c.prev.Exists() && en.Holds() == c.prev.Holds():
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
	refused := make([]error, len(todo))
	objects := make([]gitstore.Object, len(todo))
	stored := make([]gitstore.Entry, len(todo))
	for i := range todo {
		objects[i] = e.store.ContentObject(ctx, &stored[i], &refused[i], func() (io.ReadCloser, disk.Stat, error) {
			r, st, err := e.openContent(todo[i].path, e.opts.Limits.LargestFile)
			if err == nil {
				todo[i].stat = st
			}
			return r, st, err
		})
	}
	ids, err := e.store.Write(ctx, objects)
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
			// keeps what was captured of it; the next checkpoint looks again.
			if _, err := e.lstat(c.path); err == nil {
				cap.skipped = append(cap.skipped, wire.Skip{Path: wire.Path(c.path), Reason: "was changing while it was read"})
				if c.prev.Exists() {
					c.prev.stat = disk.Stat{}
					cap.tracked[c.path] = c.prev
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

// put records a candidate's content; its state is trusted next time only if it
// is old enough to show a later change.
func (cap *capture) put(c candidate, en gitstore.Entry, now int64) {
	if c.stat.Ctime > now-racyWindow {
		c.stat = disk.Stat{}
	}
	cap.tracked[c.path] = tracked{en, c.stat}
	if en != c.prev.Entry {
		cap.changes = append(cap.changes, gitstore.Change{Path: c.path, From: c.prev.Entry, To: en})
	}
}

// unreadable skips a file whose permissions keep even its owner out.
func (cap *capture) unreadable(c candidate, err error) bool {
	reason := "can't be read"
	switch {
	case errors.Is(err, gitstore.ErrQuota):
		reason = gitstore.ErrQuota.Error()
	case fault.Is(err, fault.Exhausted):
		reason = "grew too large while it was read"
	case !disk.IsDenied(err):
		return false
	}
	cap.skipped = append(cap.skipped, wire.Skip{Path: wire.Path(c.path), Reason: reason})
	if c.prev.Exists() {
		cap.tracked[c.path] = tracked{c.prev.Entry, disk.Stat{}}
	}
	return true
}

func (e *Engine) lstat(p string) (disk.Stat, error) {
	dir, err := disk.OpenDir(e.rootFD, wire.ParentDir(p))
	if err != nil {
		return disk.Stat{}, err
	}
	defer unix.Close(dir)
	return disk.Lstat(dir, path.Base(p))
}

// openContent opens what would be captured of a path: a file's bytes or a
// link's target.
func (e *Engine) openContent(p string, max int64) (io.ReadCloser, disk.Stat, error) {
	return disk.OpenContent(e.rootFD, p, max)
}

// surelyDiffers reports whether a large file is other than what was captured of
// it, where its size says so already.
func (e *Engine) surelyDiffers(ctx context.Context, c candidate) (bool, error) {
	if !e.store.Chunked(c.stat) || !c.prev.Chunked {
		return e.store.Chunked(c.stat), nil
	}
	m, err := e.store.Manifest(ctx, c.prev.ID)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Damaged) {
		return false, nil // a scrub tells of it
	}
	return err == nil && m.Size != c.stat.Size, err
}

// isStill reports whether a large file holds what was captured of it.
func (e *Engine) isStill(c candidate) (bool, error) {
	r, st, err := e.openContent(c.path, -1)
	if err != nil {
		return false, nil //nolint:nilerr // whoever stores it says so
	}
	_, is, err := e.store.IsOneOf(r, st, []gitstore.Entry{c.prev.Entry})
	if errors.Is(err, disk.ErrGone) {
		err = nil // it is being written to
	}
	return is && st == c.stat, errors.Join(err, r.Close())
}

// hashFile returns the entry of a path that should be in the state want.
func (e *Engine) hashFile(p string, want disk.Stat) (gitstore.Entry, error) {
	r, st, err := e.openContent(p, -1)
	if err != nil {
		if disk.IsGone(err) {
			err = disk.ErrGone
		}
		return gitstore.None, err
	}
	defer r.Close()
	if st != want {
		return gitstore.None, disk.ErrGone // changed since the walk: read again, and stored
	}
	return e.store.HashEntry(r, st)
}
