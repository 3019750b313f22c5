package state

import (
	"context"
	"database/sql"
	"strings"

	"choir.dev/choiros/contract"
)

// Source is something that a task read and quoted.
type Source struct {
	contract.SourceAdded
	ID    string
	Run   string // that quoted it first
	Task  string
	Seq   uint64
	Cited int // citations that rest on it
}

// Citation is a claim with the words of a source that it rests on.
type Citation struct {
	contract.Citation
	Run  string // that judged it last
	Task string
	Seq  uint64
}

// SourceFilter selects sources, newest first; Before, when not 0, those added before that sequence.
type SourceFilter struct {
	Words  string // only those whose address or title has these words, in any case
	Before uint64
	Limit  int // 0: 100; at most MaxPage
}

const sourceColumns = `id, address, title, media, text, bytes, truncated, read, commit_id, run, task, seq, (SELECT COUNT(*) FROM citations WHERE source = sources.id)`

func scanSource(r *sql.Rows) (s Source, err error) {
	return s, r.Scan(&s.ID, &s.Address, &s.Title, &s.Media, &s.Text, &s.Bytes, &s.Truncated, &s.Read, &s.Commit, &s.Run, &s.Task, &s.Seq, &s.Cited)
}

// Sources lists sources, the newest first.
func (s *Store) Sources(ctx context.Context, f SourceFilter) ([]Source, error) {
	query, args := "SELECT "+sourceColumns+" FROM sources WHERE seq < ?", []any{below(f.Before)}
	for word := range strings.FieldsSeq(f.Words) {
		query += ` AND (address || ' ' || title) LIKE ? ESCAPE '\'`
		args = append(args, "%"+strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(word)+"%")
	}
	return all(ctx, s, "state.Sources", scanSource, query+" ORDER BY seq DESC LIMIT ?", append(args, page(f.Limit))...)
}

// Source returns the source with an id.
func (s *Store) Source(ctx context.Context, id string) (Source, error) {
	return one(ctx, s, "state.Source", "source "+id, scanSource, "SELECT "+sourceColumns+" FROM sources WHERE id = ?", id)
}

const citationColumns = `c.label, c.source, s.address, s.title, c.claim, c.excerpt, c.line, c.support, c.reason, c.model, c.run, c.task, c.seq FROM citations c JOIN sources s ON s.id = c.source`

func scanCitation(r *sql.Rows) (c Citation, err error) {
	return c, r.Scan(&c.Label, &c.Source, &c.Address, &c.Title, &c.Claim, &c.Excerpt, &c.Line, &c.Support, &c.Reason, &c.Model, &c.Run, &c.Task, &c.Seq)
}

// CitationsOf lists the citations that rest on a source, the oldest judgement first.
func (s *Store) CitationsOf(ctx context.Context, source string) ([]Citation, error) {
	return all(ctx, s, "state.CitationsOf", scanCitation, "SELECT "+citationColumns+" WHERE c.source = ? ORDER BY c.seq, c.label LIMIT ?", source, MaxPage)
}

// Cited returns those of the labels that are citations.
func (s *Store) Cited(ctx context.Context, labels []string) ([]Citation, error) {
	var out []Citation
	for len(labels) > 0 {
		some := labels[:min(len(labels), 100)]
		labels = labels[len(some):]
		args := make([]any, len(some))
		for i, l := range some {
			args[i] = l
		}
		got, err := all(ctx, s, "state.Cited", scanCitation, "SELECT "+citationColumns+" WHERE c.label IN (?"+strings.Repeat(",?", len(some)-1)+") ORDER BY c.label", args...)
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// sourceAdded keeps what was added first: the same text of the same place is one source.
func sourceAdded(ctx context.Context, w *writer, e contract.Event, p *contract.SourceAdded) error {
	return do(ctx, w, `INSERT INTO sources (id, address, title, media, text, bytes, truncated, read, commit_id, run, task, seq) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
		e.Subject, p.Address, p.Title, p.Media, string(p.Text), p.Bytes, boolInt(p.Truncated), p.Read, p.Commit, e.Run, e.Task, int64(e.Sequence))
}

// citationRecorded keeps the first verdict: what is unknown may be judged anew, and nothing else is.
func citationRecorded(ctx context.Context, w *writer, e contract.Event, p *contract.CitationRecorded) error {
	c := p.Citation
	n, err := w.exec(ctx, `INSERT INTO citations (label, source, claim, excerpt, line, support, reason, model, run, task, seq)
		SELECT ?,?,?,?,?,?,?,?,?,?,? WHERE EXISTS (SELECT 1 FROM sources WHERE id = ?)
		ON CONFLICT (label) DO UPDATE SET support = excluded.support, reason = excluded.reason, model = excluded.model, run = excluded.run, task = excluded.task, seq = excluded.seq
		WHERE citations.support = ?`,
		c.Label, c.Source, c.Claim, c.Excerpt, c.Line, string(c.Support), c.Reason, c.Model, e.Run, e.Task, int64(e.Sequence), c.Source, string(contract.SupportUnknown))
	if err != nil || n > 0 {
		return err
	}
	return must(ctx, w, "there is no such source", "UPDATE citations SET label = label WHERE label = ?", c.Label)
}
