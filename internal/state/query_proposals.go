package state

import (
	"context"
	"database/sql"

	"choir.dev/choiros/contract"
)

// ProposalOpen is the status of a proposal that nobody has resolved; later it is
// its contract.Resolution.
const ProposalOpen = "open"

// Proposal is a change to a document that waits for a user, or did. Body is only set by the
// method Proposal, not by Proposals.
type Proposal struct {
	contract.DocumentProposed
	Role   contract.ActorKind
	Run    string
	Task   string
	Time   string
	Seq    uint64
	Status string
	// What its contract.ProposalResolved says, once it has one.
	By          string
	Revision    int // that holds an accepted one
	Successor   string
	Resolved    string // when
	ResolvedSeq uint64
}

const proposalColumns = `id, document, base, author, role, sha256, run, task, time, seq, status, resolved_by, revision, successor, resolved, resolved_seq`

func scanProposal(r *sql.Rows, p *Proposal, more ...any) error {
	return r.Scan(append([]any{&p.Proposal, &p.Document, &p.Base, &p.Author, &p.Role, &p.SHA256, &p.Run, &p.Task, &p.Time, &p.Seq,
		&p.Status, &p.By, &p.Revision, &p.Successor, &p.Resolved, &p.ResolvedSeq}, more...)...)
}

// ProposalFilter selects proposals; Before, when not 0, those made before that
// sequence. An empty document selects those of all documents.
type ProposalFilter struct {
	Document string
	Open     bool // only those
	Before   uint64
	Limit    int // 0: 100; at most MaxPage
}

// Proposals lists proposals without their bodies, newest first.
func (s *Store) Proposals(ctx context.Context, f ProposalFilter) ([]Proposal, error) {
	query, args := "SELECT "+proposalColumns+" FROM proposals WHERE seq < ?", []any{below(f.Before)}
	if f.Document != "" {
		query, args = query+" AND document = ?", append(args, f.Document)
	}
	if f.Open {
		query += " AND status = 'open'"
	}
	return all(ctx, s, "state.Proposals", func(r *sql.Rows) (p Proposal, err error) { return p, scanProposal(r, &p) },
		query+" ORDER BY seq DESC LIMIT ?", append(args, page(f.Limit))...)
}

// Proposal returns a document's proposal with its body.
func (s *Store) Proposal(ctx context.Context, document, id string) (Proposal, error) {
	return one(ctx, s, "state.Proposal", "proposal "+id+" of that document", func(r *sql.Rows) (p Proposal, err error) { return p, scanProposal(r, &p, &p.Body) },
		"SELECT "+proposalColumns+", body FROM proposals WHERE document = ? AND id = ?", document, id)
}

// RevisionOf is the newest revision of a document with a text; fault.NotFound
// when there is none.
func (s *Store) RevisionOf(ctx context.Context, document string, text contract.BlobRef) (int, error) {
	return one(ctx, s, "state.RevisionOf", "revision with that text", func(r *sql.Rows) (n int, err error) { return n, r.Scan(&n) },
		"SELECT revision FROM revisions WHERE document = ? AND sha256 = ? ORDER BY revision DESC LIMIT 1", document, string(text))
}

// RevisionBy is the revision that an event of a contract.Origin made; fault.NotFound when
// it made none.
func (s *Store) RevisionBy(ctx context.Context, document, origin, event string) (int, error) {
	return one(ctx, s, "state.RevisionBy", "revision by event "+event, func(r *sql.Rows) (n int, err error) { return n, r.Scan(&n) },
		`SELECT v.revision FROM events e JOIN revisions v ON v.document = ? AND v.seq = e.seq
		WHERE e.origin = ? AND e.id = ? AND e.duplicate = 0`, document, origin, event)
}
