package mirror

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// maxBrings bounds how often a file that changes all the time is tried.
const maxBrings = 5

// reconcile reconciles a document and its file: an edit of the file becomes a revision by its
// author, and, with write, a newer revision is written to the file.
func (m *Mirror) reconcile(ctx context.Context, id string, by document.Author, write bool) error {
	for range maxBrings {
		again, err := m.step(ctx, id, by, write)
		if err != nil || !again {
			return err
		}
	}
	return fault.New("document.mirror", fault.Unavailable, "", errors.New("the file does not hold still"))
}

// step does one thing to a document or its file; again says that there may be
// more to do.
func (m *Mirror) step(ctx context.Context, id string, by document.Author, write bool) (again bool, err error) {
	if err := m.state.CaughtUp(ctx, m.log); err != nil {
		return false, err
	}
	known, err := m.state.Mirrored(ctx, id)
	if err != nil {
		return false, err
	}
	head, err := m.documents.Get(ctx, id)
	if err != nil {
		return false, err
	}
	told := known.Revision
	known.Revision = max(known.Revision, m.wrote[id])
	m.path[id] = head.Path
	delete(m.blob, id)
	file, err := m.workspace.Stat(ctx, head.Path)
	missing := fault.Is(err, fault.NotFound)
	if err != nil && !missing {
		return false, err
	}
	if missing {
		m.blob[id] = "none"
	} else if file.Kind == "file" {
		m.blob[id] = file.ID
	}
	if s, held := m.skip[id]; held && s == (heldStamp{stampOf(file), head.Seq}) {
		m.done(id, head.Seq)
		return false, nil
	}
	delete(m.skip, id)
	switch {
	case missing && known.Revision == head.Revision:
		// Somebody removed the file. The document stays in the log, and its next revision
		// is written to a file again.
		if told != head.Revision {
			return true, m.mark(ctx, head)
		}
		m.done(id, head.Seq)
		return false, nil
	case missing:
		return m.write(ctx, head, "none", write)
	case file.Kind != "file":
		return false, m.hold(id, file, head, fmt.Errorf("%s is a %s", head.Path, file.Kind))
	case file.ID == blobID(head.Body):
		if m.wrote[id] == head.Revision && !write {
			return false, nil // the next round appends the event
		}
		if told != head.Revision {
			return true, m.mark(ctx, head)
		}
		m.done(id, head.Seq)
		return false, nil
	}
	if known.Revision > 0 {
		was, err := m.documents.Revision(ctx, id, known.Revision)
		if err != nil {
			return false, err
		}
		if file.ID == blobID(was.Body) {
			return m.write(ctx, head, file.ID, write)
		}
	}
	body, err := m.workspace.ReadAll(ctx, "", head.Path, document.MaxBody+1)
	if err != nil {
		return fault.Is(err, fault.NotFound), notFoundIsNews(err)
	}
	text := string(body)
	if !document.IsText(body) {
		return false, m.hold(id, file, head, fmt.Errorf("what is in %s can't be a document: it is not text, or more than %d bytes", head.Path, document.MaxBody))
	}
	if ours, err := m.ours(ctx, head, known.Revision, contract.NewBlobRef(sha256.Sum256(body))); err != nil {
		return false, err
	} else if ours {
		return m.write(ctx, head, file.ID, write)
	}
	return true, m.absorb(ctx, head, known.Revision, text, file.ID, by)
}

func notFoundIsNews(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// hold leaves a document and its file alone that can't be reconciled, until one of them
// changes. The file stays as its user has it.
func (m *Mirror) hold(id string, file wire.FileInfo, head state.Revision, why error) error {
	m.skip[id] = heldStamp{stampOf(file), head.Seq}
	m.done(id, head.Seq)
	return why
}

// ours reports whether a text is that of a revision newer than the one that is known to
// have been in the file: it was written, and a crash came before the event about it. An
// older text was put there by somebody.
func (m *Mirror) ours(ctx context.Context, head state.Revision, known int, ref contract.BlobRef) (bool, error) {
	for after := known; ; {
		list, err := m.documents.History(ctx, head.Document, after, state.MaxPage)
		if err != nil {
			return false, err
		}
		for _, r := range list {
			if r.SHA256 == ref {
				return true, nil
			}
			after = r.Revision
		}
		if len(list) < state.MaxPage {
			return false, nil
		}
	}
}

// write calls put if files may be written now; the next step appends the event.
func (m *Mirror) write(ctx context.Context, head state.Revision, expected string, write bool) (again bool, err error) {
	if !write {
		return false, nil
	}
	_, err = m.put(ctx, head, expected)
	return err == nil, err
}

// put writes the newest revision to its file if the file is as expected. A later step
// appends the event: a file whose text is a revision's is not mistaken for an edit without
// it, so a writer of revisions need not wait for it.
func (m *Mirror) put(ctx context.Context, head state.Revision, expected string) (took bool, err error) {
	w, err := m.workspace.Follow(ctx, head.Path, strings.NewReader(head.Body), expected)
	if fault.Is(err, fault.Conflict) {
		return false, nil // somebody changed the file after it was read
	}
	if err != nil {
		return false, err
	}
	m.seen[head.Document], m.blob[head.Document], m.wrote[head.Document] = stampOf(w.FileInfo), w.ID, head.Revision
	return true, nil
}

// mark appends the event that a revision is in its file, once the file is on disk:
// otherwise a power cut could bring an older text back, which would look as if somebody had
// written it.
func (m *Mirror) mark(ctx context.Context, r state.Revision) error {
	if err := m.workspace.Sync(ctx, r.Path); err != nil {
		return err
	}
	_, err := m.log.Append(ctx, contract.Draft{
		Actor: contract.System(), Type: "file.written", Subject: contract.FileSubject(r.Path),
		Data: contract.FileWritten{Path: r.Path, Size: int64(len(r.Body)), SHA256: r.SHA256},
	})
	if err == nil {
		delete(m.wrote, r.Document)
	}
	return err
}

// absorb makes a revision of the file's text. base is the revision that was edited, 0 when
// it is not known, which stands for the newest.
func (m *Mirror) absorb(ctx context.Context, head state.Revision, base int, text, fileID string, by document.Author) error {
	if base == 0 {
		base = head.Revision
	}
	rev, err := m.documents.Revise(ctx, head.Document, base, text, by)
	var conflict *document.ConflictError
	if errors.As(err, &conflict) {
		rev, err = conflict.Current, nil
		if !by.By.Kind.Client() {
			// The file gets the document's text again; its own text becomes a proposal.
			_, _, err = m.documents.Propose(ctx, head.Document, base, text, by, "")
		} else {
			// Both changes are the user's, made in two ways. The file's is the newer: its
			// text wins where they differ, and the other one stays in the history.
			was, gerr := m.documents.Revision(ctx, head.Document, base)
			if gerr != nil {
				return gerr
			}
			merged, _ := document.Merge(was.Body, rev.Body, text)
			rev, err = m.documents.Revise(ctx, head.Document, rev.Revision, merged, by)
		}
	}
	if err != nil {
		return err
	}
	if rev.Body == text {
		return nil // the next step appends the event
	}
	_, err = m.put(ctx, rev, fileID)
	return err
}

// blobID is git's id of a blob with this content.
func blobID(body string) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00%s", len(body), body)
	return hex.EncodeToString(h.Sum(nil))
}
