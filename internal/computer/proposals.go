package computer

import (
	"context"
	"crypto/sha256"
	"io"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace/keeper"
)

// maxProposalDiff bounds the diff of a proposal that is shown, in bytes.
const maxProposalDiff = 512 << 10

// propose makes proposals of what a task's publish left as the user has it: of
// the conflicting files that are documents, the task's text. It returns their
// paths. The same publish again makes the same proposals.
func (m *mirror) propose(ctx context.Context, publish string, o *overlay, tree string, conflicts []keeper.Conflict) (paths []string, err error) {
	m.work.Lock()
	defer m.work.Unlock()
	for _, k := range conflicts {
		p := string(k.Path)
		if !mayMirror(p) {
			continue
		}
		id, err := m.c.documentAt(ctx, p)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return paths, err
		}
		// What the user wrote is a revision first. If it can't be, the proposal
		// still has its place.
		m.complain(id, m.bring(ctx, id, byUser(""), true))
		text, ok, err := m.c.textAt(ctx, tree, p)
		if err != nil {
			return paths, err
		}
		if !ok {
			continue // removed, or nothing that a document can hold
		}
		base, err := m.c.revisionAt(ctx, id, o.Base(), p)
		if err != nil {
			return paths, err
		}
		if _, ok, err = m.c.documents.Propose(ctx, id, base, text, byTask(o.ref), publish); err != nil {
			return paths, err
		} else if ok {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// textAt is what a document's file holds in a commit; false when there is none,
// or what a document can't hold.
func (c *Computer) textAt(ctx context.Context, commit, p string) (text string, ok bool, err error) {
	content, err := c.workspace.Read(ctx, commit, p, 0, document.MaxBody+1)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer content.Close()
	b, err := io.ReadAll(io.LimitReader(content, document.MaxBody+1))
	if err != nil {
		return "", false, err
	}
	return string(b), isText(b), nil
}

// isText reports whether bytes can be a document's text.
func isText(b []byte) bool {
	return len(b) <= document.MaxBody && utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}

// revisionAt is the revision whose text a document's file holds in a commit; 0
// when it holds that of none.
func (c *Computer) revisionAt(ctx context.Context, id, commit, p string) (int, error) {
	text, ok, err := c.textAt(ctx, commit, p)
	if err != nil || !ok {
		return 0, err
	}
	n, err := c.state.RevisionOf(ctx, id, contract.NewBlobRef(sha256.Sum256([]byte(text))))
	if fault.Is(err, fault.NotFound) {
		return 0, nil
	}
	return n, err
}

// Proposals implements control.Documents.
func (c *Computer) Proposals(ctx context.Context, id string, all bool, before uint64, limit int) ([]view.Proposal, bool, error) {
	if err := c.caughtUp(ctx); err != nil {
		return nil, false, err
	}
	if _, err := c.documents.Get(ctx, id); err != nil {
		return nil, false, err
	}
	rows, err := c.documents.Proposals(ctx, state.ProposalFilter{Document: id, Open: !all, Before: before, Limit: min(limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	out := make([]view.Proposal, 0, len(rows))
	for _, p := range rows {
		out = append(out, proposalOf(p))
	}
	return out, more, nil
}

// Proposal implements control.Documents.
func (c *Computer) Proposal(ctx context.Context, id, proposal string) (view.Proposal, error) {
	if err := c.caughtUp(ctx); err != nil {
		return view.Proposal{}, err
	}
	p, err := c.documents.Proposal(ctx, id, proposal)
	if err != nil {
		return view.Proposal{}, err
	}
	out := proposalOf(p)
	if p.Status != state.ProposalOpen {
		return out, nil
	}
	v, err := c.documents.Preview(ctx, p)
	if err != nil {
		return view.Proposal{}, err
	}
	out.On, out.Overlaps = v.Head.Revision, len(v.Overlaps)
	out.Diff, out.Truncated = document.Unified(v.Head.Path, v.Head.Body, v.Merged, maxProposalDiff)
	return out, nil
}

func proposalOf(p state.Proposal) view.Proposal {
	return view.Proposal{
		ID: p.ID, Document: p.Document, Base: p.Base, Author: p.Author, Role: p.Role, Run: p.Run, Task: p.Task, Time: when(p.Time), Sequence: p.Seq,
		SHA256: p.SHA256, Status: p.Status, By: p.By, Revision: p.Revision, Successor: p.Successor, Resolved: when(p.Resolved), Body: p.Body,
	}
}

// Resolve implements control.Documents.
func (c *Computer) Resolve(ctx context.Context, user, id, proposal string, accept bool) (view.Resolved, error) {
	do := c.documents.Dismiss
	if accept {
		do = c.documents.Accept
	}
	done, err := do(ctx, id, proposal, byUser(user))
	return view.Resolved{ID: done.Proposal, Resolution: done.Resolution, Revision: done.Revision, Sequence: done.Seq}, err
}
