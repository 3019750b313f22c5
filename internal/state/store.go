package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/state/schema"
)

// Blobs reads data that are too large for an event; *disk.Store is one. A reference that
// does not exist must give a fault.NotFound error.
type Blobs interface {
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// Option changes how a store is opened.
type Option func(*Store)

// WithBlobs gives the store the blobs that events refer to. Without it, an
// event whose data are a blob is kept with an error.
func WithBlobs(b Blobs) Option { return func(s *Store) { s.blobs = b } }

// WithLogger gives the store a logger; without one it logs nothing.
func WithLogger(l *slog.Logger) Option { return func(s *Store) { s.log = l } }

// withSchema opens at an older schema; for tests of the migrations.
func withSchema(version int) Option { return func(s *Store) { s.schema = version } }

// Store is one computer's open state file. Its methods may be called from many
// goroutines; only Project, Apply and Recover write.
type Store struct {
	path   string
	blobs  Blobs
	log    *slog.Logger
	schema int

	read  *sql.DB                            // several connections, query_only
	reads reads                              // parsed for those
	asked func(op, query string, args []any) // test hook: called with each list's query

	wmu   sync.Mutex // held by whoever writes
	db    *sql.DB    // one connection
	write *writer
	// unsynced says that the file was made by Open and may not be on disk yet.
	unsynced bool

	mu      sync.Mutex
	lastSeq uint64        // committed
	moved   chan struct{} // closed and replaced when lastSeq moves or stopped is set
	stopped error         // why projection ended, if it failed
}

// Open opens or makes the state file at path (its directory must exist) and
// migrates it. A file from a newer version is refused with fault.Newer.
// A file that an older projector wrote is emptied; Recover or Project fill it from the log
// again. A file that Open makes is not synced: Recover does that when there is a log, and
// whoever makes a computer does it before its log has anything.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	const op = "state.Open"
	s := &Store{path: path, log: slog.New(slog.DiscardHandler), schema: schema.Version(), moved: make(chan struct{})}
	for _, o := range opts {
		o(s)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if _, err := os.Stat(filepath.Dir(abs)); err != nil {
		return nil, fault.New(op, fault.NotFound, "Make the directory first.", err)
	}
	// The file's name need not be durable: a state that is lost is replayed.
	if s.unsynced, err = newfile.SQLite(ctx, abs, newfile.Unsynced, s.begin); err != nil {
		return nil, fault.Wrap(op, err)
	}
	// Only the log decides what is acknowledged. The state may lose its last transactions
	// to a power cut and replays them, so it need not sync each one.
	common := []string{"busy_timeout(5000)", "foreign_keys(1)", "synchronous(NORMAL)", "temp_store(MEMORY)"}
	if s.db, err = sql.Open("sqlite", dsn(abs, common...)); err != nil {
		return nil, fault.Wrap(op, err)
	}
	s.db.SetMaxOpenConns(1)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(openError(op, err), s.db.Close())
	}
	fail := func(err error) (*Store, error) {
		return nil, errors.Join(fault.Wrap(op, err), conn.Close(), s.db.Close())
	}
	if err := schema.Migrate(ctx, conn, s.schema); err != nil {
		return fail(err)
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil { // only done once the file is known to be a state file
		return fail(err)
	}
	if s.unsynced {
		if err := beginWAL(ctx, conn); err != nil {
			return fail(err)
		}
	}
	s.write = &writer{conn: conn, stmts: map[string]*sql.Stmt{}}
	if err := s.loadMeta(ctx); err != nil {
		return fail(err)
	}
	if s.read, err = sql.Open("sqlite", dsn(abs, append(common, "query_only(1)")...)); err != nil {
		return fail(err)
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(4) // each has parsed the queries
	return s, nil
}

// begin lays out an empty state.
func (s *Store) begin(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(schema.Migrate(ctx, conn, s.schema), conn.Close())
}

// beginWAL writes the first values of a new file's meta table into its WAL without the
// syncs that SQLite does for the beginning of one. Those keep remains of an earlier WAL
// from being taken for parts of this one, and there was none. What is in the WAL is synced
// before it is checkpointed into the file.
func beginWAL(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "PRAGMA synchronous = OFF;\n"+beginMeta+";\nPRAGMA synchronous = NORMAL")
	return err
}

// settle syncs a file that Open has made.
func (s *Store) settle() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if !s.unsynced {
		return nil
	}
	s.unsynced = false
	return syncFile(s.path)
}

// openError says what to do about a file that SQLite can't open.
func openError(op string, err error) error {
	if isCode(err, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) {
		return fault.New(op, fault.Invalid, "Run choir rebuild: it replays the log into a new file.", err)
	}
	return fault.Wrap(op, err)
}

func dsn(abs string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String()
}

// loadMeta reads the sequence reached, and empties the file when an older
// projector wrote it.
func (s *Store) loadMeta(ctx context.Context) error {
	version, err := s.write.meta(ctx, "projector")
	if err != nil {
		return err
	}
	have, _ := strconv.Atoi(version)
	if have > ProjectorVersion {
		return fault.New("state.Open", fault.Newer, "Start a newer choir, or the one that wrote this data directory.",
			fmt.Errorf("projector %d wrote the state; this build is projector %d", have, ProjectorVersion))
	}
	if have < ProjectorVersion {
		if version != "" {
			s.log.Info("an older projector wrote the state; it is replayed from the log", "path", s.path, "projector", have)
		}
		return s.reset(ctx)
	}
	last, err := s.write.meta(ctx, "last_seq")
	if err != nil {
		return err
	}
	if s.lastSeq, err = strconv.ParseUint(last, 10, 63); err != nil {
		return fault.New("state.Open", fault.Invalid, "Run choir rebuild.", fmt.Errorf("last_seq is %q", last))
	}
	return nil
}

// Close ends the connections. Project must have returned.
func (s *Store) Close() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	var errs []error
	if s.read != nil {
		errs = append(errs, s.reads.close(), s.read.Close())
	}
	errs = append(errs, s.write.close(), s.db.Close())
	return errors.Join(errs...)
}

// Path is where the file is.
func (s *Store) Path() string { return s.path }

// Last is the newest sequence projected.
func (s *Store) Last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastSeq
}

// LogEnd says where a log ends; *ledger.Log is one.
type LogEnd interface{ Last() uint64 }

// CaughtUp waits until the state reflects everything that was acknowledged before the call.
// So a caller reads its own writes, and whoever asks about an event that they were shown
// gets an answer from after it.
func (s *Store) CaughtUp(ctx context.Context, log LogEnd) error {
	return s.Wait(ctx, log.Last())
}

// Wait returns when everything up to minSeq is projected. It fails when ctx ends, or
// projection has stopped, for longer than an awake.Patient ctx outlasts.
func (s *Store) Wait(ctx context.Context, minSeq uint64) error {
	var patience <-chan struct{}
	for {
		s.mu.Lock()
		reached, moved, stopped := s.lastSeq >= minSeq, s.moved, s.stopped
		s.mu.Unlock()
		if reached {
			return nil
		}
		var over <-chan struct{} // never, while it is projected
		if stopped != nil {
			if patience == nil {
				ends, stop := awake.PatienceOf(ctx)
				defer stop()
				patience = ends
			}
			over = patience
		}
		select {
		case <-over:
			return fault.New("state.Wait", fault.Unavailable, "The projection has stopped; the server's log says why.", stopped)
		case <-moved:
		case <-ctx.Done():
			return fault.New("state.Wait", "", "", fmt.Errorf("sequence %d is not projected yet (at %d): %w", minSeq, s.Last(), ctx.Err()))
		}
	}
}

// advance tells waiters that lastSeq moved, or that projection stopped.
func (s *Store) advance(seq uint64, stopped error) {
	s.mu.Lock()
	s.lastSeq, s.stopped = seq, stopped
	close(s.moved)
	s.moved = make(chan struct{})
	s.mu.Unlock()
}

// beginMeta fills the meta table of an empty state.
var beginMeta = "INSERT INTO meta (key, value) VALUES ('last_seq', '0'), ('projector', '" + strconv.Itoa(ProjectorVersion) + "')"

// reset empties every table and starts again at sequence 0.
func (s *Store) reset(ctx context.Context) error {
	const op = "state.reset"
	tables, err := tableNames(ctx, s.write.conn)
	if err != nil {
		return fault.Wrap(op, err)
	}
	// Foreign keys are checked at commit here, so the order of the tables does not matter.
	script := []string{"PRAGMA defer_foreign_keys = 1"}
	for _, t := range tables {
		script = append(script, "DELETE FROM "+quote(t))
	}
	script = append(script, beginMeta)
	if _, err := s.write.conn.ExecContext(ctx, "BEGIN IMMEDIATE;\n"+strings.Join(script, ";\n")+";\nCOMMIT;"); err != nil {
		return errors.Join(fault.Wrap(op, err), schema.Rollback(ctx, s.write.conn))
	}
	s.advance(0, nil)
	return nil
}

// writer is the one connection that writes, with its statements prepared.
type writer struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// exec runs one prepared statement and returns how many rows it changed.
func (w *writer) exec(ctx context.Context, query string, args ...any) (int64, error) {
	st, err := w.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (w *writer) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := w.stmts[query]; ok {
		return st, nil
	}
	st, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", query, err)
	}
	w.stmts[query] = st
	return st, nil
}

// meta returns a value of the meta table, "" when there is none.
func (w *writer) meta(ctx context.Context, key string) (string, error) {
	var v string
	err := w.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, err
}

func (w *writer) close() error {
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	// This makes the file complete for whoever copies or opens it next. The WAL is as safe,
	// so a busy reader is no error.
	if _, err := w.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil && !isCode(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// ProjectorVersion is raised when projections change what they write. A file
// of an older projector is replayed from the log before it is used.
const ProjectorVersion = 4

// isCode reports whether err is an SQLite error with one of the primary codes.
func isCode(err error, codes ...int) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	for _, c := range codes {
		if se.Code()&0xff == c {
			return true
		}
	}
	return false
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// tableNames lists the tables a dump holds, sorted: all but SQLite's own and
// the shadow tables of virtual ones.
func tableNames(ctx context.Context, q querier) ([]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, rows.Err()
}
