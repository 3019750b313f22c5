package computer

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper"
)

// mirrorEvery is how often revisions are written to their files, and
// mirrorLook how often files are looked at for edits that nobody announced.
const (
	mirrorEvery = time.Second
	mirrorLook  = 2 * time.Second
)

// runDocumentsDir holds the documents of runs. They are revised all the time
// while a run goes on; their files follow when no run is under way, so that
// they neither change what is being verified nor add checkpoints.
const runDocumentsDir = "artifacts/runs/"

// mirror keeps the files of living documents. The log is the authority: a new
// revision is written to the document's file, and a file that holds anything
// else than the log says was written to it becomes a revision. What was written
// last is told by the system's newest file.written for the path (see
// state.Mirrored), so nothing is kept beside the log, and neither a crash nor a
// restore echoes as an edit.
type mirror struct {
	c    *Computer
	busy func() bool // whether a run is under way

	work sync.Mutex           // held by whoever brings documents and files together
	seen map[string]stamp     // by document: its file when it was last looked at
	told map[string]string    // by document: what was last complained about
	last time.Time            // of the newest look at all files
	path map[string]string    // by document
	skip map[string]heldStamp // documents whose file can't follow, until either changes

	mu       sync.Mutex
	followed uint64
	pending  map[string]revised
}

// stamp is a file as a listing shows it; the zero stamp is no file.
type stamp struct {
	kind       string
	size, time int64
}

// heldStamp is the state in which document and file can't be brought together.
type heldStamp struct {
	file stamp
	head uint64
}

// revised are the events of revisions that are not known to be in the file.
type revised struct{ first, last uint64 }

func stampOf(f keeper.FileInfo) stamp { return stamp{f.Kind, f.Size, f.Time} }

func byUser(user string) document.Author {
	name := user
	if name == "" {
		name = string(contract.RoleUser)
	}
	return document.Author{Name: name, Role: contract.RoleUser, User: user}
}

// newMirror finds out which documents are ahead of their files. The state must
// be up to the log.
func newMirror(ctx context.Context, c *Computer, busy func() bool) (*mirror, error) {
	m := &mirror{
		c: c, busy: busy, seen: map[string]stamp{}, told: map[string]string{}, path: map[string]string{},
		skip: map[string]heldStamp{}, pending: map[string]revised{}, followed: c.state.Last(),
	}
	list, err := c.state.Mirrors(ctx, state.MaxPage)
	if err != nil {
		return nil, fault.Wrap("computer.mirror", err)
	}
	for _, d := range list {
		m.path[d.ID] = d.Path
		if d.Next > 0 {
			m.pending[d.ID] = revised{d.Next, d.HeadSeq}
		}
	}
	return m, nil
}

// seq is the last sequence that is projected and mirrored.
func (m *mirror) seq() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq := min(m.followed, m.c.state.Last())
	for _, r := range m.pending {
		seq = min(seq, r.first-1)
	}
	return seq
}

// follow notes every revision, as it comes.
func (m *mirror) follow(ctx context.Context) error {
	m.mu.Lock()
	after := m.followed
	m.mu.Unlock()
	for e, err := range m.c.log.Follow(ctx, after) {
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

// done says that the document's file holds what was written up to a sequence.
func (m *mirror) done(id string, head uint64) {
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

// run mirrors until ctx ends.
func (m *mirror) run(ctx context.Context) error {
	tick := time.NewTicker(mirrorEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m.beat(ctx)
	}
}

// beat is one round of run.
func (m *mirror) beat(ctx context.Context) {
	m.work.Lock()
	defer m.work.Unlock() // a panic must not leave it locked for the next start
	m.pass(ctx, byUser(""), time.Since(m.last) >= mirrorLook, false)
}

// settle takes in what was edited, as by's, and writes what is due; with all,
// also the documents of runs under way.
func (m *mirror) settle(ctx context.Context, by document.Author, all bool) {
	m.work.Lock()
	defer m.work.Unlock()
	m.pass(ctx, by, true, all)
}

// around settles, runs f, which changes files, and takes in what it says it
// changed, as the author's. Nothing else is taken for f's meanwhile.
func (m *mirror) around(ctx context.Context, all bool, f func() (paths []string, by document.Author, err error)) error {
	m.work.Lock()
	defer m.work.Unlock()
	m.pass(ctx, byUser(""), true, all)
	paths, by, err := f()
	for _, p := range paths {
		if !mayMirror(p) {
			continue
		}
		id, aerr := m.c.documentAt(ctx, p)
		if fault.Is(aerr, fault.NotFound) {
			continue
		}
		if aerr == nil {
			aerr = m.bring(context.WithoutCancel(ctx), id, by, true)
		}
		m.complain(id, aerr)
	}
	return err
}

// freshen writes what is newer than the file at a path, before it is read.
func (m *mirror) freshen(ctx context.Context, p string) {
	if !mayMirror(p) {
		return
	}
	m.work.Lock()
	defer m.work.Unlock()
	id, err := m.c.documentAt(ctx, p)
	if err == nil {
		err = m.bring(ctx, id, byUser(""), true)
	}
	if !fault.Is(err, fault.NotFound) {
		m.complain(p, err)
	}
}

// documentAt is the document of a path; fault.NotFound when there is none.
func (c *Computer) documentAt(ctx context.Context, p string) (string, error) {
	if err := c.caughtUp(ctx); err != nil {
		return "", err
	}
	return c.state.DocumentAt(ctx, p)
}

// byTask is the Associate's hand.
func byTask(t dispatch.TaskRef) document.Author {
	return document.Author{Name: string(contract.RoleAssociate), Role: contract.RoleAssociate, Run: t.Run, Task: t.Task}
}

// mayMirror reports whether a path can be a document's.
func mayMirror(p string) bool {
	return strings.HasPrefix(p, "artifacts/") && strings.HasSuffix(p, ".md")
}

// pass looks at the files and writes what is due. work is held. What fails
// stays due, and keeps seq back.
func (m *mirror) pass(ctx context.Context, by document.Author, look, all bool) {
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
		if busy && (m.path[id] == "" || strings.HasPrefix(m.path[id], runDocumentsDir)) {
			if m.path[id] != "" {
				continue
			}
			d, err := m.c.state.Mirrored(ctx, id)
			if err != nil {
				m.complain(id, err)
				continue
			}
			if m.path[id] = d.Path; strings.HasPrefix(d.Path, runDocumentsDir) {
				continue
			}
		}
		m.complain(id, m.bring(ctx, id, byUser(""), true))
	}
}

// look finds files that changed since they were last looked at.
func (m *mirror) look(ctx context.Context, by document.Author) {
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
			var files []keeper.FileInfo
			if files, more, err = m.c.workspace.Files(ctx, dir, after, 0); len(files) == 0 {
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
			err := m.bring(ctx, id, by, false)
			if err == nil {
				m.seen[id] = now
			}
			m.complain(id, err)
		}
	}
}

// maxKept bounds how much of paths is named to the keeper, in bytes.
const maxKept = 3 << 20

// files lists the files of documents. A restore of everything leaves them
// alone: what they hold is the log's to say, and the log does not go back. A
// path that is named is another matter: its older text becomes a revision. So
// is a file that can't follow its document. work is held.
func (m *mirror) files(ctx context.Context) (paths []string, err error) {
	if err := m.c.caughtUp(ctx); err != nil {
		return nil, err
	}
	for size, after := 0, ""; ; {
		list, err := m.c.state.DocumentPaths(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			if size += len(d.Path); size > maxKept {
				return paths, nil
			}
			after = d.Path
			if _, held := m.skip[d.ID]; !held {
				paths = append(paths, d.Path)
			}
		}
		if len(list) < state.MaxPage {
			return paths, nil
		}
	}
}

// complain logs what keeps a document from its file, once.
func (m *mirror) complain(what string, err error) {
	if err == nil {
		delete(m.told, what)
		return
	}
	if m.c.ctx.Err() != nil || errors.Is(err, context.Canceled) || fault.Is(err, fault.Unavailable) || m.told[what] == err.Error() {
		return // it ends, or it is tried again, or it was said
	}
	m.told[what] = err.Error()
	m.c.logger.Warn("a document and its file could not be brought together; it is tried again", "document", what, "error", err)
}

// maxBrings bounds how often a file that changes all the time is tried.
const maxBrings = 5

// bring brings a document and its file together: an edit of the file becomes a
// revision by its author, and, with write, a newer revision is written to it.
func (m *mirror) bring(ctx context.Context, id string, by document.Author, write bool) error {
	for range maxBrings {
		again, err := m.step(ctx, id, by, write)
		if err != nil || !again {
			return err
		}
	}
	return fault.New("computer.mirror", fault.Unavailable, "", errors.New("the file does not hold still"))
}

// step does one thing to a document or its file; again says that there may be
// more to do.
func (m *mirror) step(ctx context.Context, id string, by document.Author, write bool) (again bool, err error) {
	c := m.c
	if err := c.caughtUp(ctx); err != nil {
		return false, err
	}
	known, err := c.state.Mirrored(ctx, id)
	if err != nil {
		return false, err
	}
	head, err := c.documents.Get(ctx, id)
	if err != nil {
		return false, err
	}
	m.path[id] = head.Path
	file, err := c.workspace.Stat(ctx, head.Path)
	missing := fault.Is(err, fault.NotFound)
	if err != nil && !missing {
		return false, err
	}
	if s, held := m.skip[id]; held && s == (heldStamp{stampOf(file), head.Seq}) {
		m.done(id, head.Seq)
		return false, nil
	}
	delete(m.skip, id)
	switch {
	case missing && known.Revision == head.Revision:
		// Somebody removed the file. The document stays in the log, and its next
		// revision is written again.
		m.done(id, head.Seq)
		return false, nil
	case missing:
		return m.put(ctx, head, "none", write)
	case file.Kind != "file":
		return false, m.hold(id, file, head, fmt.Errorf("%s is a %s", head.Path, file.Kind))
	case file.ID == blobID(head.Body):
		if known.Revision != head.Revision {
			return true, m.mark(ctx, head)
		}
		m.done(id, head.Seq)
		return false, nil
	}
	if known.Revision > 0 {
		was, err := c.documents.Revision(ctx, id, known.Revision)
		if err != nil {
			return false, err
		}
		if file.ID == blobID(was.Body) {
			return m.put(ctx, head, file.ID, write)
		}
	}
	body, err := c.readFile(ctx, head.Path, document.MaxBody+1)
	if err != nil {
		return fault.Is(err, fault.NotFound), notFoundIsNews(err)
	}
	text := string(body)
	if !isText(body) {
		return false, m.hold(id, file, head, fmt.Errorf("what is in %s can't be a document: it is not text, or more than %d bytes", head.Path, document.MaxBody))
	}
	if ours, err := m.ours(ctx, head, known.Revision, contract.NewBlobRef(sha256.Sum256(body))); err != nil {
		return false, err
	} else if ours {
		return m.put(ctx, head, file.ID, write)
	}
	return true, m.absorb(ctx, head, known.Revision, text, file.ID, by)
}

func notFoundIsNews(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// hold leaves a document and a file alone that can't be brought together, until
// one of them changes. The file stays as its user has it.
func (m *mirror) hold(id string, file keeper.FileInfo, head document.Revision, why error) error {
	m.skip[id] = heldStamp{stampOf(file), head.Seq}
	m.done(id, head.Seq)
	return why
}

// ours reports whether a text is that of a revision newer than the one that is
// known to have been in the file: it was written, and a crash came before the
// event that says so. An older one was put there by somebody.
func (m *mirror) ours(ctx context.Context, head document.Revision, known int, ref contract.BlobRef) (bool, error) {
	for after := known; ; {
		list, err := m.c.documents.History(ctx, head.ID, after, state.MaxPage)
		if err != nil {
			return false, err
		}
		for _, r := range list {
			if r.SHA256 == ref {
				return true, nil
			}
			after = r.ID
		}
		if len(list) < state.MaxPage {
			return false, nil
		}
	}
}

// put writes the newest revision to its file if that is as expected.
func (m *mirror) put(ctx context.Context, head document.Revision, expected string, write bool) (again bool, err error) {
	if !write {
		return false, nil
	}
	w, err := m.c.workspace.Write(ctx, head.Path, strings.NewReader(head.Body), workspace.WriteOptions{
		If: expected, By: workspace.Actor{Role: contract.RoleSystem},
	})
	if fault.Is(err, fault.Conflict) {
		return true, nil // somebody was faster
	}
	if err != nil {
		return false, err
	}
	m.seen[head.ID] = stampOf(w.FileInfo)
	m.done(head.ID, head.Seq)
	return false, nil
}

// mark says in the log that a revision is in its file, where it was found.
func (m *mirror) mark(ctx context.Context, r document.Revision) error {
	_, err := m.c.log.Append(ctx, contract.Draft{
		Role: contract.RoleSystem, Type: "file.written", Subject: "file/" + r.Path,
		Data: contract.FileWritten{Path: r.Path, Size: int64(len(r.Body)), SHA256: r.SHA256},
	})
	return err
}

// absorb makes what is in the file a revision. base is the revision that was
// edited; 0 when it is not known, and the newest then.
func (m *mirror) absorb(ctx context.Context, head document.Revision, base int, text, fileID string, by document.Author) error {
	if base == 0 {
		base = head.Revision
	}
	rev, err := m.c.documents.Revise(ctx, head.ID, base, text, by)
	var conflict *document.ConflictError
	if errors.As(err, &conflict) {
		rev, err = conflict.Current, nil
		if by.Role != contract.RoleUser {
			// The file goes back to what the document says; what it held waits for
			// the user.
			_, _, err = m.c.documents.Propose(ctx, head.ID, base, text, by, "")
		} else {
			// Both are the user's, by two roads. The file is the newer: its text
			// wins where they differ, and the other stays in the history.
			was, gerr := m.c.documents.Revision(ctx, head.ID, base)
			if gerr != nil {
				return gerr
			}
			merged, _ := document.Merge(was.Body, rev.Body, text)
			rev, err = m.c.documents.Revise(ctx, head.ID, rev.Revision, merged, by)
		}
	}
	if err != nil {
		return err
	}
	if rev.Body == text {
		return nil // the next step marks it
	}
	_, err = m.put(ctx, rev, fileID, true)
	return err
}

// blobID is the id git gives to a file's content.
func blobID(body string) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00%s", len(body), body)
	return hex.EncodeToString(h.Sum(nil))
}
