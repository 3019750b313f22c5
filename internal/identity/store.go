package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
)

// How long things last.
const (
	LinkTTL        = time.Hour
	TicketTTL      = 30 * time.Second
	SessionTTL     = 30 * 24 * time.Hour // absolute
	SessionIdle    = 7 * 24 * time.Hour
	DesktopIdle    = 24 * time.Hour // at the latest it ends with its console session
	touchEvery     = time.Minute    // how often a session's last use is written at most
	maxLinks       = 8              // valid ones per account
	maxSessions    = 200            // valid ones per account; beyond that the one unused longest is dropped
	maxTickets     = 64             // valid ones per console session
	secretBytes    = 32
	maxSecretChars = 128
)

// migrations bring a file from version i to i+1. Never change one that was
// released; add another.
var migrations = sync.OnceValue(func() []string {
	return []string{
		`
CREATE TABLE users (
  id      TEXT    PRIMARY KEY,
  name    TEXT    NOT NULL,
  created INTEGER NOT NULL, -- Unix milliseconds, as all times here
  claimed INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE links (
  hash    BLOB    PRIMARY KEY,
  user    TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  used    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  hash      BLOB    PRIMARY KEY,
  id        TEXT    NOT NULL UNIQUE, -- names it without being it; also its principal on the bus
  user      TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  kind      TEXT    NOT NULL CHECK (kind IN ('console', 'desktop')),
  computer  TEXT    NOT NULL DEFAULT '', -- of a desktop's session
  parent    BLOB    REFERENCES sessions (hash) ON DELETE CASCADE,
  created   INTEGER NOT NULL,
  seen      INTEGER NOT NULL,
  expires   INTEGER NOT NULL,
  CHECK ((kind = 'desktop') = (parent IS NOT NULL) AND (kind = 'desktop') = (computer <> ''))
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_user ON sessions (user, seen);
CREATE INDEX sessions_by_parent ON sessions (parent);

CREATE TABLE tickets (
  hash     BLOB    PRIMARY KEY,
  session  BLOB    NOT NULL REFERENCES sessions (hash) ON DELETE CASCADE,
  computer TEXT    NOT NULL,
  expires  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tickets_by_session ON tickets (session);

CREATE TABLE tokens (
  hash    BLOB    PRIMARY KEY,
  id      TEXT    NOT NULL UNIQUE,
  user    TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  name    TEXT    NOT NULL,
  created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE computers (
  id      TEXT    PRIMARY KEY,
  owner   TEXT    NOT NULL REFERENCES users (id),
  handle  TEXT    NOT NULL UNIQUE, -- the first label of its desktop's host name
  created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
`,
		`
-- What every call of a model consumed, as far as the computers' logs were
-- counted; rows stay when their computer goes. Tests of models have no computer.
CREATE TABLE spending (
  call       TEXT    PRIMARY KEY,
  computer   TEXT    NOT NULL,
  day        TEXT    NOT NULL, -- UTC
  tokens_in  INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cost_usd   REAL    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spending_by_day ON spending (day);
CREATE INDEX spending_by_computer ON spending (computer, day);

CREATE TABLE counted (
  computer TEXT    PRIMARY KEY,
  sequence INTEGER NOT NULL,
  link     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
`,
		addSums(),
		addMembers(),
		addGitTokens(),
		addScopes(),
		addChanges(),
		addDevices(),
	}
})

// Store is an open identity file. Its methods may be called from many
// goroutines.
type Store struct {
	db   *sql.DB
	path string
	now  func() time.Time
	// unsynced says that writes are not synced yet: the file is being made, and its maker
	// syncs all of it at the end.
	unsynced atomic.Bool
	answers  answers
	head     *head // nil before the store is open: what migrations do is not counted
}

// Option changes how a store is opened.
type Option func(*Store)

// WithClock gives the store another clock.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Unsynced opens a file whose writes are not synced before Settle: whoever makes it syncs
// all of it then.
func Unsynced() Option { return func(s *Store) { s.unsynced.Store(true) } }

// Open opens or makes the file at path (its directory must exist) and migrates
// it. A file of a newer version is refused with fault.Newer.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	const op = "identity.Open"
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	s := &Store{path: abs, now: time.Now}
	for _, o := range opts {
		o(s)
	}
	on := newfile.Synced
	if s.unsynced.Load() {
		on = newfile.Unsynced
	}
	if err := Newer(ctx, abs); err != nil { // before anything is written
		return nil, err
	}
	fresh, err := newfile.SQLite(ctx, abs, on, s.lay)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	// SQLite gives the files beside it the same mode, so they are readable by the owner
	// only.
	if err := os.Chmod(abs, 0o600); err != nil {
		return nil, fault.Wrap(op, err)
	}
	// There is one connection, beside the one that notices changes: writes are rare, reads
	// take microseconds, and no statement waits for another one's lock.
	s.db = sql.OpenDB(connector{s})
	s.db.SetMaxOpenConns(1)
	if err := s.begin(ctx, fresh, on); err != nil {
		return nil, errors.Join(fault.Wrap(op, unreadable(err)), s.db.Close())
	}
	return s, nil
}

// connector opens the file's connections.
type connector struct{ store *Store }

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }

// Connect implements driver.Connector. A sign-out must survive a power cut; what
// nobody was told of need not.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	synchronous := "synchronous(FULL)"
	if c.store.unsynced.Load() {
		synchronous = "synchronous(OFF)"
	}
	q := url.Values{"_pragma": {"busy_timeout(5000)", "foreign_keys(1)", "journal_mode(WAL)", synchronous}, "_txlock": {"immediate"}}
	to, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: c.store.path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	return to.Connect(ctx)
}

// Settle makes every later change be on disk when it returns. What was written before is
// for the caller to sync.
func (s *Store) Settle(ctx context.Context) error {
	if !s.unsynced.Swap(false) {
		return nil
	}
	_, err := s.db.ExecContext(ctx, "PRAGMA synchronous = FULL")
	return fault.Wrap("identity.Settle", err)
}

// lay makes the schema of a new file with its owner in it: a file without an owner would
// count as one that has lost its accounts.
func (s *Store) lay(ctx context.Context, db *sql.DB) error {
	fresh := &Store{db: db, now: s.now}
	if err := fresh.migrate(ctx, len(migrations())); err != nil {
		return err
	}
	_, err := fresh.Owner(ctx)
	return err
}

// begin checks the file before it changes anything.
func (s *Store) begin(ctx context.Context, fresh bool, on newfile.Durability) error {
	if err := check(ctx, s.db); err != nil {
		return err
	}
	if !fresh { // a head beside a file that is made now belongs to an earlier one
		if err := checkHead(ctx, s.db, s.path); err != nil {
			return err
		}
	}
	if err := s.migrate(ctx, len(migrations())); err != nil {
		return err
	}
	return s.openHead(ctx, fresh, on)
}

// Check examines the file at path, which nobody has open, without writing: fault.Damaged
// when it is inconsistent, fault.Newer when a newer version wrote it.
func Check(ctx context.Context, path string) error {
	const op = "identity.Check"
	abs, err := filepath.Abs(path)
	if err != nil {
		return fault.Wrap(op, err)
	}
	db, end, err := reading(abs)
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := newer(ctx, db); fault.Is(err, fault.Newer) {
		return fault.Wrap(op, errors.Join(err, end()))
	}
	err = check(ctx, db)
	var users int
	if err == nil && db.QueryRowContext(ctx, "SELECT count(*) FROM users").Scan(&users) != nil {
		err = fault.New("", fault.Damaged, "", errors.New("it has no accounts"))
	}
	if err == nil {
		err = checkHead(ctx, db, abs)
	}
	return fault.Wrap(op, errors.Join(unreadable(err), end()))
}

func check(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&text); err != nil {
		return err
	}
	if text != "ok" {
		return fault.New("", fault.Damaged, "", errors.New(text))
	}
	return checkSums(ctx, db)
}

// HintDamaged is what to do about a file of accounts that is damaged.
const HintDamaged = "Run choir recover: it makes the file of accounts anew, keeps the old one aside and leaves the computers as they are; then sign in again with the link that choir up prints. Or restore the data directory from a backup."

// DamageError says what is wrong with a damaged file of accounts. A start, a later check
// and a recovery all use these words.
type DamageError struct {
	What error
}

func (e *DamageError) Error() string { return "control.sqlite: " + fault.Text(e.What) }
func (e *DamageError) Unwrap() error { return e.What }

// unreadable is the error for a file that SQLite can't read.
func unreadable(err error) error {
	var se *sqlite.Error
	var older *OlderError
	if errors.As(err, &older) {
		return err
	}
	broken := fault.Is(err, fault.Damaged)
	if errors.As(err, &se) {
		switch se.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			broken = true
		}
	}
	if !broken {
		return err
	}
	return fault.New("", fault.Damaged, HintDamaged, &DamageError{err})
}

// QuickCheck checks the open file: fault.Damaged when it is inconsistent. It does so on a
// connection of its own, for the store's answers from its cache.
func (s *Store) QuickCheck(ctx context.Context) error {
	const op = "identity.QuickCheck"
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: s.path, RawQuery: q.Encode()}).String())
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, errors.Join(unreadable(check(ctx, db)), db.Close()))
}

// Close closes the file.
func (s *Store) Close() error { return errors.Join(s.answers.Close(), s.db.Close(), s.head.close()) }

// migrate brings the file to a version; each start brings it to the newest.
func (s *Store) migrate(ctx context.Context, to int) error {
	if err := newer(ctx, s.db); err != nil {
		return err
	}
	have, err := versionOf(ctx, s.db)
	if err != nil {
		return err
	}
	for v := have; v < to; v++ {
		err := s.tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, migrations()[v]); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", v+1)); err != nil {
				return err
			}
			return sumSchema(ctx, tx, v+1)
		})
		if err != nil {
			return fmt.Errorf("migrate control.sqlite to version %d: %w", v+1, err)
		}
	}
	return nil
}

// tx runs f in one transaction. Everything that changes the file goes through it.
func (s *Store) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if s.head == nil {
		if err := f(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	count, changed, err := counted(ctx, tx, f)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil || !changed {
		return err
	}
	s.head.write(count)
	return nil
}

// exec runs one statement in a transaction.
func (s *Store) exec(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		res, err = tx.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

func (s *Store) millis() int64 { return s.now().UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// newSecret draws a secret; its prefix says what it is to whoever finds it. It does not
// begin with a dash: people give secrets to programs as arguments, and there it would be
// taken for an option.
func newSecret(prefix string) (secret string, hash []byte) {
	for secret == "" || secret[0] == '-' {
		var b [secretBytes]byte
		_, _ = rand.Read(b[:]) // never fails since Go 1.24
		secret = prefix + base64.RawURLEncoding.EncodeToString(b[:])
	}
	return secret, hashOf(secret)
}

// hashOf is what is kept of a secret. The secrets have 256 random bits, so a
// plain hash can't be searched. Looking a hash up by index leaks nothing useful
// through timing: the caller does not choose the hash.
func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// plausible rejects what can't be a secret before the database is asked.
func plausible(secret string) bool { return len(secret) >= 43 && len(secret) <= maxSecretChars }

func denied(op, hint, reason string) error {
	return fault.New(op, fault.Denied, hint, errors.New(reason))
}
