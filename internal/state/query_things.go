package state

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Checkpoint is a commit of the workspace: the data of its event, and the event's envelope.
type Checkpoint struct {
	contract.CheckpointCreated
	By       contract.Actor // who made it, as far as its event says so
	Run      string
	Task     string
	Time     string
	Sequence uint64 // of its event
}

const checkpointQuery = `SELECT k.id, k.parent, k.tree, k.kind, k.message, k.at_seq, k.verified, k.files, k.skipped, k.left_out, k.ignored, k.outside, k.run, k.task, k.time, k.seq,
	e.source, e.actor, e.user FROM checkpoints k JOIN events e ON e.seq = k.seq`

func scanCheckpoint(r *sql.Rows) (c Checkpoint, err error) {
	var skipped, ignored string
	var e contract.Event
	err = r.Scan(&c.Commit, &c.Parent, &c.Tree, &c.Kind, &c.Message, &c.Seq, &c.Verified, &c.Files, &skipped, &c.Left, &ignored, &c.Outside, &c.Run, &c.Task, &c.Time, &c.Sequence,
		&e.Source, &e.Actor, &e.User)
	c.By = e.By()
	return c, errors.Join(err, decode(skipped, &c.Skipped), decode(ignored, &c.Ignored))
}

// Checkpoints lists checkpoints, newest first; before, when not 0, gives those
// before that sequence.
func (s *Store) Checkpoints(ctx context.Context, before uint64, limit int) ([]Checkpoint, error) {
	if before == 0 {
		before = contract.MaxSequence
	}
	return all(ctx, s, "state.Checkpoints", scanCheckpoint, checkpointQuery+" WHERE k.seq < ? ORDER BY k.seq DESC LIMIT ?", int64(before), page(limit))
}

// Checkpoint returns the one whose commit id begins with id.
func (s *Store) Checkpoint(ctx context.Context, id string) (Checkpoint, error) {
	const op = "state.Checkpoint"
	list, err := all(ctx, s, op, scanCheckpoint, checkpointQuery+" WHERE k.id >= ?1 AND k.id < ?1 || 'g' ORDER BY k.id LIMIT 2", id)
	switch {
	case err != nil:
		return Checkpoint{}, err
	case len(id) < 4 || len(list) == 0:
		return Checkpoint{}, fault.New(op, fault.NotFound, "choir checkpoints lists what there is.", errors.New("there is no checkpoint "+id))
	case len(list) > 1:
		return Checkpoint{}, fault.New(op, fault.Invalid, "Give more of the commit id.", errors.New("more than one checkpoint begins with "+id))
	}
	return list[0], nil
}

// Restore is one restore of the workspace.
type Restore struct {
	ID         uint64   `json:"id"` // sequence of its event
	To         string   `json:"to"`
	Safety     string   `json:"safety"`
	Checkpoint string   `json:"checkpoint"`
	Paths      []string `json:"paths"`
	Undo       bool     `json:"undo"`
	Time       string   `json:"time"`
}

// Restores lists restores, newest first. Undo restores the newest one's Safety.
func (s *Store) Restores(ctx context.Context, limit int) ([]Restore, error) {
	return all(ctx, s, "state.Restores", func(r *sql.Rows) (Restore, error) {
		var v Restore
		var paths string
		err := r.Scan(&v.ID, &v.To, &v.Safety, &v.Checkpoint, &paths, &v.Undo, &v.Time)
		return v, errors.Join(err, decode(paths, &v.Paths))
	}, `SELECT seq, "to", safety, checkpoint, paths, undo, time FROM restores ORDER BY seq DESC LIMIT ?`, page(limit))
}

// Publish is one application of a task's merged tree to the live one. It is
// open, and recovery rolls it forward, while FinishedSeq is 0.
type Publish struct {
	contract.PublishStarted
	Run         string
	Task        string
	Conflicts   []string
	Inverted    bool
	StartedSeq  uint64
	FinishedSeq uint64
}

const publishQuery = `SELECT id, run, task, "commit", base, live, paths, conflicts, inverted, started_seq, finished_seq FROM publishes`

func scanPublish(r *sql.Rows) (p Publish, err error) {
	var conflicts string
	err = r.Scan(&p.Publish, &p.Run, &p.Task, &p.Commit, &p.Base, &p.Live, &p.Paths, &conflicts, &p.Inverted, &p.StartedSeq, &p.FinishedSeq)
	return p, errors.Join(err, decode(conflicts, &p.Conflicts))
}

// LivePublish is the newest publish of what a task edited while it worked.
func (s *Store) LivePublish(ctx context.Context) (Publish, error) {
	return one(ctx, s, "state.LivePublish", "live publish", scanPublish, publishQuery+" WHERE live = 1 ORDER BY started_seq DESC LIMIT 1")
}

// Publishes lists publishes in order: of one task, or of all when task is
// empty; only those not finished when open.
func (s *Store) Publishes(ctx context.Context, task string, open bool) ([]Publish, error) {
	query, args := publishQuery+" WHERE 1", []any{}
	if task != "" {
		query, args = query+" AND task = ?", append(args, task)
	}
	if open {
		query += " AND finished_seq = 0"
	}
	return all(ctx, s, "state.Publishes", scanPublish, query+" ORDER BY started_seq LIMIT ?", append(args, MaxPage)...)
}

// Revision is one revision of a living document: the data of its event, and the event's
// envelope. A document is its newest revision. Body is not set in lists.
type Revision struct {
	contract.DocumentRevised
	Role contract.ActorKind
	Run  string
	Task string
	// Cause is the id of the event that caused it.
	Cause string
	Time  string
	Seq   uint64
}

// RevisionIn is the revision that an event makes, as it is projected.
func RevisionIn(e contract.Event, p contract.DocumentRevised) Revision {
	return Revision{DocumentRevised: p, Role: e.Kind(), Run: e.Run, Task: e.Task, Cause: e.Causation, Time: stamp(e.Time), Seq: e.Sequence}
}

const revisionColumns = `v.revision, v.document, v.base, v.title, v.path, v.author, v.role, v.sha256, v.run, v.task, v.causation, v.time, v.seq`

func scanRevision(r *sql.Rows, v *Revision, more ...any) error {
	return r.Scan(append([]any{&v.Revision, &v.Document, &v.Base, &v.Title, &v.Path, &v.Author, &v.Role, &v.SHA256, &v.Run, &v.Task, &v.Cause, &v.Time, &v.Seq}, more...)...)
}

const newestRevisions = ` FROM documents d JOIN revisions v ON v.document = d.id AND v.revision = d.revision`

// Documents lists documents, the most recently revised first.
func (s *Store) Documents(ctx context.Context, limit int) ([]Revision, error) {
	return all(ctx, s, "state.Documents", func(r *sql.Rows) (v Revision, err error) { return v, scanRevision(r, &v) },
		"SELECT "+revisionColumns+newestRevisions+" ORDER BY d.seq DESC LIMIT ?", page(limit))
}

// Document returns a document's newest revision with its body.
func (s *Store) Document(ctx context.Context, id string) (Revision, error) {
	return one(ctx, s, "state.Document", "document "+id, func(r *sql.Rows) (v Revision, err error) { return v, scanRevision(r, &v, &v.Body) },
		"SELECT "+revisionColumns+", v.body"+newestRevisions+" WHERE d.id = ?", id)
}

// DocumentAt returns the id of the document mirrored at a path; fault.NotFound
// when there is none.
func (s *Store) DocumentAt(ctx context.Context, path string) (string, error) {
	return one(ctx, s, "state.DocumentAt", "document at "+path, func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) },
		"SELECT id FROM documents WHERE path = ? ORDER BY seq DESC LIMIT 1", path)
}

// Revisions lists a document's revisions after a number, oldest first, without
// bodies.
func (s *Store) Revisions(ctx context.Context, document string, after, limit int) ([]Revision, error) {
	return all(ctx, s, "state.Revisions", func(r *sql.Rows) (v Revision, err error) { return v, scanRevision(r, &v) },
		"SELECT "+revisionColumns+" FROM revisions v WHERE v.document = ? AND v.revision > ? ORDER BY v.revision LIMIT ?", document, after, page(limit))
}

// Revision returns one revision with its body.
func (s *Store) Revision(ctx context.Context, document string, revision int) (Revision, error) {
	return one(ctx, s, "state.Revision", "such revision of document "+document, func(r *sql.Rows) (v Revision, err error) { return v, scanRevision(r, &v, &v.Body) },
		"SELECT "+revisionColumns+", v.body FROM revisions v WHERE v.document = ? AND v.revision = ?", document, revision)
}

// RevisionAt returns, without its body, the newest revision that a document had at a
// sequence; fault.NotFound when it was made later.
func (s *Store) RevisionAt(ctx context.Context, document string, seq uint64) (Revision, error) {
	return one(ctx, s, "state.RevisionAt", "document "+document+" at that time", func(r *sql.Rows) (v Revision, err error) { return v, scanRevision(r, &v) },
		"SELECT "+revisionColumns+" FROM revisions v WHERE v.document = ? AND v.seq <= ? ORDER BY v.revision DESC LIMIT 1", document, int64(seq))
}

// Texts lists a document's revisions before a number (0: from the newest) with
// their bodies, newest first: as many as have max bytes together, and at least
// one. more says that there are older ones.
func (s *Store) Texts(ctx context.Context, document string, before, limit, max int) (list []Revision, more bool, err error) {
	const op = "state.Texts"
	rows, err := s.query(ctx, "SELECT "+revisionColumns+", v.body FROM revisions v WHERE v.document = ? AND v.revision < ? ORDER BY v.revision DESC LIMIT ?",
		document, cmp.Or(before, math.MaxInt32), page(limit)+1)
	if err != nil {
		return nil, false, fault.Wrap(op, err)
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		var v Revision
		if err := scanRevision(rows, &v, &v.Body); err != nil {
			return nil, false, fault.Wrap(op, err)
		}
		if size += len(v.Body); len(list) == page(limit) || len(list) > 0 && size > max {
			more = true
			break
		}
		list = append(list, v)
	}
	return list, more, fault.Wrap(op, errors.Join(rows.Err(), rows.Close()))
}

// Window is one window of the desktop.
type Window struct {
	ID    string               `json:"id"`
	App   string               `json:"app"`
	Title string               `json:"title"`
	Frame contract.Frame       `json:"frame"`
	Z     int                  `json:"z"`
	State contract.WindowState `json:"state"`
	Props map[string]string    `json:"props"`
	Seq   uint64               `json:"seq"`
}

// Windows lists the open windows from the bottom up.
func (s *Store) Windows(ctx context.Context) ([]Window, error) {
	return all(ctx, s, "state.Windows", func(r *sql.Rows) (Window, error) {
		var w Window
		var props string
		err := r.Scan(&w.ID, &w.App, &w.Title, &w.Frame.X, &w.Frame.Y, &w.Frame.W, &w.Frame.H, &w.Z, &w.State, &props, &w.Seq)
		return w, errors.Join(err, decode(props, &w.Props))
	}, `SELECT id, app, title, x, y, w, h, z, state, props, seq FROM windows ORDER BY z, seq LIMIT ?`, MaxPage)
}

// ThemeState is the theme in force and the event that brought it.
type ThemeState struct {
	Theme  contract.Theme   `json:"theme"`
	SHA256 contract.BlobRef `json:"sha256"`
	Time   string           `json:"time"`
	Seq    uint64           `json:"seq"`
}

// Theme returns the theme in force; fault.NotFound before the first.
func (s *Store) Theme(ctx context.Context) (ThemeState, error) {
	return one(ctx, s, "state.Theme", "theme yet", func(r *sql.Rows) (ThemeState, error) {
		var t ThemeState
		var theme string
		err := r.Scan(&theme, &t.SHA256, &t.Time, &t.Seq)
		return t, errors.Join(err, decode(theme, &t.Theme))
	}, `SELECT theme, sha256, time, seq FROM theme`)
}

// UsageSum is what a run, or a day, consumed of one model.
type UsageSum struct {
	ID        string  `json:"id"` // provider/model
	Calls     int     `json:"calls"`
	TokensIn  int64   `json:"tokens_in"`
	TokensOut int64   `json:"tokens_out"`
	WallMS    int64   `json:"wall_ms"`
	CostUSD   float64 `json:"cost_usd"`
	Estimated bool    `json:"estimated"` // some of it is
}

// UsageFilter selects usage of a run, or of a UTC day (YYYY-MM-DD); both empty
// select everything.
type UsageFilter struct{ Run, Day string }

// Usage sums usage per model.
func (s *Store) Usage(ctx context.Context, f UsageFilter) ([]UsageSum, error) {
	query, args := `SELECT provider || '/' || model, count(*), sum(tokens_in), sum(tokens_out), sum(wall_ms), sum(cost_usd), max(estimated) FROM usage WHERE 1`, []any{}
	if f.Run != "" {
		query, args = query+" AND run = ?", append(args, f.Run)
	}
	if f.Day != "" {
		query, args = query+" AND day = ?", append(args, f.Day)
	}
	return all(ctx, s, "state.Usage", func(r *sql.Rows) (u UsageSum, err error) {
		return u, r.Scan(&u.ID, &u.Calls, &u.TokensIn, &u.TokensOut, &u.WallMS, &u.CostUSD, &u.Estimated)
	}, query+" GROUP BY provider, model ORDER BY 1", args...)
}

// Repository is something choir add brought into workspace/. Remote may be
// reached by the default egress profile.
type Repository struct {
	ID     string `json:"id"` // its path
	Origin string `json:"origin"`
	Remote string `json:"remote"`
	Commit string `json:"commit"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Added  string `json:"added"`
}

// Repositories lists what was added, by path.
func (s *Store) Repositories(ctx context.Context) ([]Repository, error) {
	return all(ctx, s, "state.Repositories", func(r *sql.Rows) (v Repository, err error) {
		return v, r.Scan(&v.ID, &v.Origin, &v.Remote, &v.Commit, &v.Files, &v.Bytes, &v.Added)
	}, `SELECT path, origin, remote, "commit", files, bytes, added FROM repositories ORDER BY path LIMIT ?`, MaxPage)
}

// Command is a command the user ran. ExitCode is nil while it runs.
type Command struct {
	ID         string          `json:"id"`
	Argv       json.RawMessage `json:"argv"`
	Cwd        string          `json:"cwd"`
	ExitCode   *int            `json:"exit_code"`
	DurationMS int64           `json:"duration_ms"`
	Reason     string          `json:"reason"`
	StartedSeq uint64          `json:"started_seq"`
}

// Commands lists the user's commands that have not ended, newest first.
func (s *Store) Commands(ctx context.Context, limit int) ([]Command, error) {
	return all(ctx, s, "state.Commands", func(r *sql.Rows) (Command, error) {
		var c Command
		var argv string
		err := r.Scan(&c.ID, &argv, &c.Cwd, &c.ExitCode, &c.DurationMS, &c.Reason, &c.StartedSeq)
		c.Argv = json.RawMessage(argv)
		return c, err
	}, `SELECT id, argv, cwd, exit_code, duration_ms, reason, started_seq FROM commands WHERE finished_seq = 0 ORDER BY started_seq DESC LIMIT ?`, page(limit))
}

// Egress is one decision of the network policy.
type Egress struct {
	ID      uint64 `json:"id"` // sequence of its event
	Allowed bool   `json:"allowed"`
	Run     string `json:"run"`
	Task    string `json:"task"`
	Time    string `json:"time"`
	contract.EgressDecided
}

// Egress lists a task's decisions, or everyone's when task is empty, newest first.
func (s *Store) Egress(ctx context.Context, task string, limit int) ([]Egress, error) {
	query, args := `SELECT seq, allowed, run, task, time, box, kind, host, port, address, rule, reason FROM egress`, []any{}
	if task != "" {
		query, args = query+" WHERE task = ? AND task <> ''", append(args, task)
	}
	return all(ctx, s, "state.Egress", func(r *sql.Rows) (v Egress, err error) {
		return v, r.Scan(&v.ID, &v.Allowed, &v.Run, &v.Task, &v.Time, &v.Box, &v.Kind, &v.Host, &v.Port, &v.Address, &v.Rule, &v.Reason)
	}, query+" ORDER BY seq DESC LIMIT ?", append(args, page(limit))...)
}

// Build is a kept build of the desktop.
type Build struct {
	ID   uint64 `json:"id"` // sequence of its event
	Time string `json:"time"`
	contract.DesktopBuilt
}

// Builds lists kept builds, newest first.
func (s *Store) Builds(ctx context.Context, limit int) ([]Build, error) {
	return all(ctx, s, "state.Builds", func(r *sql.Rows) (b Build, err error) {
		return b, r.Scan(&b.ID, &b.Time, &b.Commit, &b.Tree, &b.Files, &b.Bytes, &b.DurationMS)
	}, `SELECT seq, time, "commit", tree, files, bytes, duration_ms FROM builds ORDER BY seq DESC LIMIT ?`, page(limit))
}

// BlobRefs returns every blob that the projected log refers to, in whatever field of
// whatever type, and the first event that does. A blob that is not among them, and is older
// than any append under way, can be removed.
func (s *Store) BlobRefs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.BlobRefs", "SELECT ref, seq FROM blob_refs")
}

// NeededBlobs returns the blobs without which something the log holds can't be
// read, as contract.Needed says, each with the first event that names it so.
// Unlike BlobRefs it leaves out hashes of content that is kept elsewhere.
func (s *Store) NeededBlobs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.NeededBlobs", "SELECT ref, needed FROM blob_refs WHERE needed <> 0")
}

// refs reads rows of a reference and an event.
func (s *Store) refs(ctx context.Context, op, query string) (map[contract.BlobRef]uint64, error) {
	rows, err := s.query(ctx, query)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer rows.Close()
	out := map[contract.BlobRef]uint64{}
	for rows.Next() {
		var ref contract.BlobRef
		var seq int64
		if err := rows.Scan(&ref, &seq); err != nil {
			return nil, fault.Wrap(op, err)
		}
		out[ref] = uint64(seq)
	}
	return out, fault.Wrap(op, rows.Err())
}

// Appended is how much people, apps and programs have appended to a log since some time.
type Appended struct {
	Events int
	Bytes  int64 // of data that stand in the events
	// Blobs are the other events' data, each with how many have it.
	Blobs map[contract.BlobRef]int
}

// Appended counts their events since then.
func (s *Store) Appended(ctx context.Context, since time.Time) (Appended, error) {
	type row struct {
		ref   contract.BlobRef
		n     int
		bytes int64
	}
	rows, err := all(ctx, s, "state.Appended", func(r *sql.Rows) (v row, err error) { return v, r.Scan(&v.ref, &v.n, &v.bytes) },
		`SELECT dataref, count(*), coalesce(sum(length(CAST(data AS BLOB))), 0) FROM events WHERE origin GLOB '*/user' AND time >= ? GROUP BY dataref`, stamp(since))
	out := Appended{Blobs: map[contract.BlobRef]int{}}
	for _, r := range rows {
		out.Events += r.n
		if r.ref == "" {
			out.Bytes += r.bytes
		} else {
			out.Blobs[r.ref] = r.n
		}
	}
	return out, err
}

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
