// Package mirror keeps the files of living documents: a new revision is written to its
// document's file, and an edit of the file becomes a revision. What a document says is
// decided by the log, never by the file.
package mirror

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// every is how often revisions are written to their files, and lookEvery how often files
// are checked for edits that no event announced.
const (
	every     = time.Second
	lookEvery = 2 * time.Second
)

// runDocumentsDir holds the documents of runs. They are revised all the time while a run
// goes on; their files are only written when no run is under way, so that they neither
// change a tree that is being verified nor add checkpoints.
const runDocumentsDir = "artifacts/runs/"

// Mirror keeps the files of living documents. The log is the authority: a new revision is
// written to the document's file, and a file whose content differs from what the log says
// was written to it becomes a revision. What was written last is known from the system's
// newest file.written event for the path (see state.Mirrored), so nothing is kept beside
// the log, and neither a crash nor a restore is mistaken for an edit.
type Mirror struct {
	log       Log
	state     *state.Store
	documents *document.Documents
	workspace *workspace.Workspace // set by Attach
	busy      func() bool
	ended     func() bool
	logger    *slog.Logger

	work sync.Mutex           // held while documents and files are compared and written
	seen map[string]stamp     // by document: its file's state when it was last examined
	told map[string]string    // by document: the last problem that was logged
	last time.Time            // when all files were last examined
	path map[string]string    // by document
	skip map[string]heldStamp // documents whose file can't be written or read, until either changes
	// By document: the git blob id of what its file held ("none": there was no file) when
	// it was last examined, and the revision that was written to it since the newest
	// file.written event.
	blob  map[string]string
	wrote map[string]int

	mu       sync.Mutex
	followed uint64
	pending  map[string]revised
}

// Log is where revisions are, and what their files hold; *ledger.Log is one.
type Log interface {
	state.LogEnd
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
}

// stamp is a file as a listing shows it; the zero stamp stands for no file.
type stamp struct {
	kind       string
	size, time int64
}

// heldStamp is the state in which a document and its file could not be reconciled.
type heldStamp struct {
	file stamp
	head uint64
}

// revised are the first and last event of revisions that may not be in the file yet.
type revised struct{ first, last uint64 }

func stampOf(f wire.FileInfo) stamp { return stamp{f.Kind, f.Size, f.Time} }

// Options are the parts that a Mirror uses.
type Options struct {
	Log       Log
	State     *state.Store // up to the log
	Documents *document.Documents
	Busy      func() bool // reports whether a run is under way
	Ended     func() bool // reports whether the computer is being closed; errors are then not logged
	Logger    *slog.Logger
}

// New finds the documents that are ahead of their files.
func New(ctx context.Context, opts Options) (*Mirror, error) {
	m := &Mirror{
		log: opts.Log, state: opts.State, documents: opts.Documents, busy: opts.Busy, ended: opts.Ended, logger: opts.Logger,
		seen: map[string]stamp{}, told: map[string]string{}, path: map[string]string{},
		skip: map[string]heldStamp{}, blob: map[string]string{}, wrote: map[string]int{}, pending: map[string]revised{}, followed: opts.State.Last(),
	}
	list, err := m.state.Mirrors(ctx, state.MaxPage)
	if err != nil {
		return nil, fault.Wrap("document.mirror", err)
	}
	for _, d := range list {
		m.path[d.ID] = d.Path
		if d.Next > 0 {
			m.pending[d.ID] = revised{d.Next, d.HeadSeq}
		}
	}
	return m, nil
}

// Attach gives the mirror the files. Before that only Seq and Follow may be called, for the
// workspace is opened with the sequence that is mirrored.
func (m *Mirror) Attach(w *workspace.Workspace) { m.workspace = w }

// Followed is the sequence of the last event that was examined for revisions.
func (m *Mirror) Followed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.followed
}

// Seq is the last sequence that is projected and mirrored.
func (m *Mirror) Seq() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq := min(m.followed, m.state.Last())
	for _, r := range m.pending {
		seq = min(seq, r.first-1)
	}
	return seq
}

// Follow notes every revision as its event is appended.
func (m *Mirror) Follow(ctx context.Context) error {
	m.mu.Lock()
	after := m.followed
	m.mu.Unlock()
	for e, err := range m.log.Follow(ctx, after) {
		if err != nil {
			return err
		}
		m.mu.Lock()
		if e.Type == "document.revised" {
			r := m.pending[e.Subject]
			if r.first == 0 {
				r.first = e.Sequence
			}
			r.last = e.Sequence
			m.pending[e.Subject] = r
		}
		m.followed = e.Sequence
		m.mu.Unlock()
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the log ended under it")
}

// done notes that the document's file holds the revisions up to a sequence.
func (m *Mirror) done(id string, head uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r, ok := m.pending[id]; {
	case !ok:
	case r.last <= head:
		delete(m.pending, id)
	default:
		m.pending[id] = revised{max(r.first, head+1), r.last}
	}
}

// Run mirrors until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m.round(ctx)
	}
}

// round is one round of Run.
func (m *Mirror) round(ctx context.Context) {
	m.work.Lock()
	defer m.work.Unlock() // a panic must not leave it locked for the next start
	m.pass(ctx, document.By(document.Nobody), time.Since(m.last) >= lookEvery, false)
}

// Settle makes revisions of edited files, by the given author, and writes the revisions
// that are due; with all, also those of runs under way.
func (m *Mirror) Settle(ctx context.Context, by document.Author, all bool) {
	m.work.Lock()
	defer m.work.Unlock()
	m.pass(ctx, by, true, all)
}

// WithChanges settles, runs f, which changes files, and makes revisions of the files that f
// returns, by the author that f returns. Meanwhile no other change is attributed to that
// author.
func (m *Mirror) WithChanges(ctx context.Context, all bool, f func(Held) (paths []string, by document.Author, err error)) error {
	m.work.Lock()
	defer m.work.Unlock()
	m.pass(ctx, document.By(document.Nobody), true, all)
	paths, by, err := f(Held{m})
	for _, p := range paths {
		if !Mirrors(p) {
			continue
		}
		id, aerr := m.documentAt(ctx, p)
		if fault.Is(aerr, fault.NotFound) {
			continue
		}
		if aerr == nil {
			aerr = m.reconcile(context.WithoutCancel(ctx), id, by, true)
		}
		m.complain(id, aerr)
	}
	return err
}

// Revise is Documents.Revise together with the file: an edit of the file that was not
// noticed yet comes first, and the file holds the new revision when Revise returns. If the
// file can't be written, that is logged as usual and the file is written later: the
// revision is in the log.
func (m *Mirror) Revise(ctx context.Context, id string, base int, body string, by document.Author) (state.Revision, error) {
	m.work.Lock()
	defer m.work.Unlock()
	if err := m.reconcile(ctx, id, document.By(document.Nobody), false); fault.Is(err, fault.NotFound) {
		return state.Revision{}, err
	} else if err != nil {
		m.complain(id, err)
	}
	rev, err := m.documents.Revise(ctx, id, base, body, by)
	if err != nil || strings.HasPrefix(rev.Path, runDocumentsDir) && m.busy() {
		return rev, err
	}
	ctx = context.WithoutCancel(ctx) // the revision is made; only the file follows
	was, known := m.blob[id]
	took := known && was == blobID(rev.Body)
	if known && !took {
		took, err = m.put(ctx, rev, was)
	}
	if !took && err == nil {
		err = m.reconcile(ctx, id, document.By(document.Nobody), true)
	}
	m.complain(id, err)
	return rev, nil
}

// Freshen writes a revision that is newer than the file at a path, before the file is read.
func (m *Mirror) Freshen(ctx context.Context, p string) {
	if !Mirrors(p) {
		return
	}
	m.work.Lock()
	defer m.work.Unlock()
	id, err := m.documentAt(ctx, p)
	if err == nil {
		err = m.reconcile(ctx, id, document.By(document.Nobody), true)
	}
	if !fault.Is(err, fault.NotFound) {
		m.complain(p, err)
	}
}

// documentAt is the document of a path; fault.NotFound when there is none.
func (m *Mirror) documentAt(ctx context.Context, p string) (string, error) {
	if err := m.state.CaughtUp(ctx, m.log); err != nil {
		return "", err
	}
	return m.state.DocumentAt(ctx, p)
}

// Mirrors reports whether a path can be a document's.
func Mirrors(p string) bool {
	return strings.HasPrefix(p, "artifacts/") && strings.HasSuffix(p, ".md")
}

// pass examines the files and writes what is due, with work held. What fails stays due, and
// keeps Seq from advancing.
func (m *Mirror) pass(ctx context.Context, by document.Author, look, all bool) {
	if look {
		m.last = time.Now()
		m.look(ctx, by)
	}
	m.mu.Lock()
	var due []string
	for id := range m.pending {
		due = append(due, id)
	}
	m.mu.Unlock()
	busy := !all && m.busy()
	for _, id := range due {
		if busy && m.path[id] == "" {
			d, err := m.state.Mirrored(ctx, id)
			if err != nil {
				m.complain(id, err)
				continue
			}
			m.path[id] = d.Path
		}
		if busy && strings.HasPrefix(m.path[id], runDocumentsDir) {
			continue
		}
		m.complain(id, m.reconcile(ctx, id, document.By(document.Nobody), true))
	}
}

// look finds files that changed since they were last examined.
func (m *Mirror) look(ctx context.Context, by document.Author) {
	dirs := map[string][]string{}
	for id, p := range m.path {
		dirs[path.Dir(p)] = append(dirs[path.Dir(p)], id)
	}
	for dir, ids := range dirs {
		there := make(map[string]stamp, len(ids))
		for _, id := range ids {
			there[m.path[id]] = stamp{}
		}
		var err error
		for after, more := "", 1; more > 0 && err == nil; {
			var files []wire.FileInfo
			if files, more, err = m.workspace.Files(ctx, dir, after, 0); len(files) == 0 {
				break
			}
			for _, f := range files {
				if _, ours := there[string(f.Path)]; ours {
					there[string(f.Path)] = stampOf(f)
				}
			}
			after = path.Base(files[len(files)-1].Path.Shown())
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			m.complain(dir, err)
			continue
		}
		for _, id := range ids {
			now := there[m.path[id]]
			if was, ok := m.seen[id]; ok && was == now {
				continue
			}
			err := m.reconcile(ctx, id, by, false)
			if err == nil {
				m.seen[id] = now
			}
			m.complain(id, err)
		}
	}
}

// maxKept bounds the paths that are named to the keeper, in bytes.
const maxKept = 3 << 20

// Held gives access to a mirror whose work lock is held.
type Held struct{ mirror *Mirror }

// Files does the same without the mirror being held.
func (m *Mirror) Files(ctx context.Context) (paths []string, err error) {
	m.work.Lock()
	defer m.work.Unlock()
	return Held{m}.Files(ctx)
}

// Files lists the files of documents. A restore of everything leaves them alone, for their
// content follows the log, which does not go back. A restore of named paths does not: the
// older text becomes a revision. Files that can't follow their document are not listed
// either.
func (h Held) Files(ctx context.Context) (paths []string, err error) {
	m := h.mirror
	if err := m.state.CaughtUp(ctx, m.log); err != nil {
		return nil, err
	}
	for size, after := 0, ""; ; {
		list, err := m.state.DocumentPaths(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			if size += len(d.Path); size > maxKept {
				return paths, nil
			}
			after = d.Path
			if _, held := m.skip[d.Document]; !held {
				paths = append(paths, d.Path)
			}
		}
		if len(list) < state.MaxPage {
			return paths, nil
		}
	}
}

// complain logs, once, what keeps a document from its file.
func (m *Mirror) complain(what string, err error) {
	if err == nil {
		delete(m.told, what)
		return
	}
	if m.ended() || errors.Is(err, context.Canceled) || fault.Is(err, fault.Unavailable) || m.told[what] == err.Error() {
		return // it is closing, or it is tried again, or it was logged already
	}
	m.told[what] = err.Error()
	m.logger.Warn("a document and its file could not be brought together; it is tried again", "document", what, "error", err)
}
