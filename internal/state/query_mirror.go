package state

import (
	"context"
	"database/sql"
)

// Mirrored is how far a document's file has followed its revisions.
type Mirrored struct {
	ID      string
	Path    string
	Head    int    // newest revision
	HeadSeq uint64 // its event
	// Revision is the newest that the system has written to the file, or found
	// in it, by the events about the file; 0 before the first. Next is the event
	// of the first revision after it; 0 when there is none.
	Revision int
	Next     uint64
}

// m.rev is the revision that the file has: the system's newest file.written event for the
// path has its hash, and the revision is the newest before that event with this text. The
// hashes are compared first, and one revision is read for the next column, because an
// event's sequence is stored behind the text in a row, and a document that is written often
// has hundreds of revisions since. The LIMITs keep SQLite from evaluating m once for each
// of its columns.
const mirroredQuery = `SELECT m.id, m.path, m.head, m.head_seq, m.rev,
	coalesce((SELECT v.seq FROM revisions v WHERE v.document = m.id AND v.revision > m.rev ORDER BY v.revision LIMIT 1), 0)
	FROM (SELECT d.id AS id, d.path AS path, d.revision AS head, d.seq AS head_seq, coalesce((
		SELECT v.revision FROM events e JOIN revisions v ON v.document = d.id AND v.sha256 = json_extract(e.data, '$.sha256') AND v.seq < e.seq
		WHERE e.seq = (SELECT f.seq FROM events f WHERE f.subject = 'file/' || d.path AND f.subject <> '' AND +f.type = 'file.written'
			AND f.source LIKE '%/system' AND f.error = '' AND f.duplicate = 0 ORDER BY f.seq DESC LIMIT 1)
		ORDER BY v.revision DESC LIMIT 1), 0) AS rev FROM documents d`

func scanMirrored(r *sql.Rows) (m Mirrored, err error) {
	return m, r.Scan(&m.ID, &m.Path, &m.Head, &m.HeadSeq, &m.Revision, &m.Next)
}

// Mirrored returns how far the file of a document has followed it.
func (s *Store) Mirrored(ctx context.Context, document string) (Mirrored, error) {
	return one(ctx, s, "state.Mirrored", "document "+document, scanMirrored, mirroredQuery+" WHERE d.id = ? LIMIT 1) m", document)
}

// Mirrors returns the same for the documents that were revised last, newest first.
func (s *Store) Mirrors(ctx context.Context, limit int) ([]Mirrored, error) {
	return all(ctx, s, "state.Mirrors", scanMirrored, mirroredQuery+" ORDER BY d.seq DESC LIMIT ?) m ORDER BY m.head_seq DESC", page(limit))
}

// DocumentPaths lists id and path of documents, in the order of their paths and
// after the given one.
func (s *Store) DocumentPaths(ctx context.Context, after string) ([]Revision, error) {
	return all(ctx, s, "state.DocumentPaths", func(r *sql.Rows) (d Revision, err error) { return d, r.Scan(&d.Document, &d.Path) },
		"SELECT id, path FROM documents WHERE path > ? ORDER BY path LIMIT ?", after, MaxPage)
}
