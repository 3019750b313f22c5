package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state/readonly"
)

// Evidence is what a state file says of the log that it was projected from. Reading it
// writes nothing, not even to the files that SQLite keeps beside it.
type Evidence struct {
	Last   uint64   // newest sequence that was projected
	Digest [32]byte // contract.Digest of that event
	// Checkpoint is the newest checkpoint's commit, "" when there is none.
	Checkpoint string
	Name       string    // the computer's
	Created    time.Time // when it was made
	Open       bool      // a run of it has not ended, as far as was projected
}

// ReadEvidence reads a state file that nobody has open. fs.ErrNotExist is in
// the error's chain when there is none, fault.Damaged when it can't be read.
func ReadEvidence(ctx context.Context, path string) (e Evidence, err error) {
	const op = "state.ReadEvidence"
	db, err := readonly.Open(path)
	if err != nil {
		return e, fault.Wrap(op, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var last string
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'last_seq'").Scan(&last); err != nil {
		return e, unreadable(op, path, err)
	}
	if e.Last, err = strconv.ParseUint(last, 10, 63); err != nil {
		return e, unreadable(op, path, err)
	}
	if e.Last == 0 {
		return e, nil
	}
	var digest []byte
	if err := db.QueryRowContext(ctx, "SELECT digest FROM events WHERE seq = ?", int64(e.Last)).Scan(&digest); err != nil {
		return e, unreadable(op, path, err)
	}
	if copy(e.Digest[:], digest) != len(e.Digest) {
		return e, unreadable(op, path, errors.New("a digest is too short"))
	}
	err = db.QueryRowContext(ctx, "SELECT id FROM checkpoints ORDER BY seq DESC LIMIT 1").Scan(&e.Checkpoint)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return e, unreadable(op, path, err)
	}
	var created string
	err = db.QueryRowContext(ctx, "SELECT name, created FROM computer LIMIT 1").Scan(&e.Name, &created)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return e, unreadable(op, path, err)
	}
	e.Created, _ = time.Parse(time.RFC3339Nano, created) // it only orders a list
	e.Open, err = openRuns(ctx, db)
	return e, err
}

// openRuns reports whether a run has not ended. It is true for a file that does not say it,
// which an earlier version may have written.
func openRuns(ctx context.Context, db *sql.DB) (open bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM runs WHERE status NOT IN ('done', 'failed', 'cancelled'))").Scan(&open)
	if ctx.Err() != nil {
		return true, fault.Wrap("state.ReadEvidence", err)
	}
	return open || err != nil, nil
}

// ReadRows calls each with every event that a state file holds, in order: the event as
// logged, and the digest that was taken when it was recorded. A row that can't be read ends
// it with fault.Damaged, after the rows before it.
func ReadRows(ctx context.Context, path string, each func(e contract.Event, digest []byte) error) (err error) {
	const op = "state.ReadRows"
	db, err := readonly.Open(path)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	prev, actor := "prev", "actor"
	for _, column := range []*string{&prev, &actor} {
		var has int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pragma_table_info('events') WHERE name = ?", *column).Scan(&has); err != nil {
			return unreadable(op, path, err)
		}
		if has == 0 { // a file from before events were chained or had actors
			*column = "''"
		}
	}
	rows, err := db.QueryContext(ctx, `SELECT seq, id, source, `+actor+`, type, subject, time, epoch, computer, user, run, task, causation, correlation, traceparent,
		data, dataref, `+prev+`, error, digest FROM events ORDER BY seq`)
	if err != nil {
		return unreadable(op, path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var digest []byte
		e, err := scanEventAnd(rows, &digest)
		if err != nil {
			return unreadable(op, path, err)
		}
		if err := each(e.Event, digest); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return unreadable(op, path, err)
	}
	return nil
}

func unreadable(op, path string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.New(op, fault.Damaged, "It is replayed from the log when that is whole.", fmt.Errorf("%s can't be read: %w", filepath.Base(path), err))
}

// ReadOnly calls f with a state file that nobody else has open. It writes nothing, and f may only read.
func ReadOnly(path string, f func(*Store) error) error {
	db, err := readonly.Open(path)
	if err != nil {
		return fault.Wrap("state.ReadOnly", err)
	}
	s := &Store{path: path, read: db}
	return errors.Join(f(s), s.reads.close(), db.Close())
}

// QuickCheck has SQLite check the open file; "" when it is sound, and otherwise what is
// wrong. It uses a connection of its own: the others answer from their caches, and are
// needed for readers. It does not block writers.
func (s *Store) QuickCheck(ctx context.Context) (_ string, err error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: s.path, RawQuery: q.Encode()}).String())
	if err != nil {
		return "", fault.Wrap("state.QuickCheck", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var text string
	err = db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&text)
	switch {
	case isCode(err, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
		return err.Error(), nil
	case err != nil:
		return "", fault.Wrap("state.QuickCheck", err)
	case text == "ok":
		return "", nil
	}
	return text, nil
}

// EventsAfter returns up to limit rows of the log as projected, in order.
func (s *Store) EventsAfter(ctx context.Context, after uint64, limit int) ([]Event, error) {
	return all(ctx, s, "state.EventsAfter", scanEvent, "SELECT "+eventColumns+" FROM events WHERE seq > ? ORDER BY seq LIMIT ?", int64(after), limit)
}
