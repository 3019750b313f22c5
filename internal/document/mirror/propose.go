package mirror

import (
	"context"
	"crypto/sha256"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
)

// Unapplied is a task's changes to files that its publish left as the user has them.
type Unapplied struct {
	Publish string // the publish's id; the same id again makes the same proposals
	Base    string // the commit that the task began with
	Tree    string // the commit that holds its work
	Paths   []string
	By      document.Author
}

// Propose makes proposals of a task's changes that its publish left out: for those files
// that are documents, of the task's text. It returns their paths.
func (m *Mirror) Propose(ctx context.Context, left Unapplied) (paths []string, err error) {
	m.work.Lock()
	defer m.work.Unlock()
	for _, p := range left.Paths {
		if !Mirrors(p) {
			continue
		}
		id, err := m.documentAt(ctx, p)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return paths, err
		}
		// The user's edit becomes a revision first. If it can't, the proposal can be made
		// all the same.
		m.complain(id, m.reconcile(ctx, id, document.By(document.Nobody), true))
		text, ok, err := m.textAt(ctx, left.Tree, p)
		if err != nil {
			return paths, err
		}
		if !ok {
			continue // removed, or not a text that a document can hold
		}
		base, err := m.revisionAt(ctx, id, left.Base, p)
		if err != nil {
			return paths, err
		}
		if _, ok, err = m.documents.Propose(ctx, id, base, text, left.By, left.Publish); err != nil {
			return paths, err
		} else if ok {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// textAt is the text of a document's file in a commit; false when there is no file, or no
// text that a document can hold.
func (m *Mirror) textAt(ctx context.Context, commit, p string) (text string, ok bool, err error) {
	b, err := m.workspace.ReadAll(ctx, commit, p, document.MaxBody+1)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		return "", false, nil
	}
	return string(b), err == nil && document.IsText(b), err
}

// revisionAt is the revision with the text that a document's file has in a commit, 0 when
// no revision has it.
func (m *Mirror) revisionAt(ctx context.Context, id, commit, p string) (int, error) {
	text, ok, err := m.textAt(ctx, commit, p)
	if err != nil || !ok {
		return 0, err
	}
	n, err := m.state.RevisionOf(ctx, id, contract.NewBlobRef(sha256.Sum256([]byte(text))))
	if fault.Is(err, fault.NotFound) {
		return 0, nil
	}
	return n, err
}
