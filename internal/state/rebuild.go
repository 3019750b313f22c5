package state

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/state/schema"

	"choir.dev/choiros/internal/fault"
)

// Difference is the first row of a table in which two state files differ. Have
// or Want is empty when only the other file has the row.
type Difference struct {
	Table string `json:"table"`
	Have  string `json:"have"`
	Want  string `json:"want"`
}

// Report is what a check or rebuild found. Seq is the sequence at which the
// two files were compared.
type Report struct {
	Seq         uint64       `json:"seq"`
	Last        uint64       `json:"last"` // sequence the new file reached
	Tables      int          `json:"tables"`
	Rows        int          `json:"rows"`
	Differences []Difference `json:"differences"`
	Unreadable  string       `json:"unreadable,omitempty"` // why the old file could not be compared
	Swapped     bool         `json:"swapped"`
}

// Clean reports whether the old file was what the log says.
func (r Report) Clean() bool { return len(r.Differences) == 0 && r.Unreadable == "" }

// Check replays the log into a new file beside the one at path, compares them
// at the sequence the old one has reached, and removes the new file. The old
// one may be open and in use meanwhile; it is only read.
func Check(ctx context.Context, path string, log Log, opts ...Option) (Report, error) {
	return rebuild(ctx, "state.Check", path, log, false, opts)
}

// Rebuild does the same and then puts the new file, with the whole log in it, in the old
// one's place. Nobody may have the old file open; it need not exist, or be readable.
func Rebuild(ctx context.Context, path string, log Log, opts ...Option) (Report, error) {
	return rebuild(ctx, "state.Rebuild", path, log, true, opts)
}

func rebuild(ctx context.Context, op, path string, log Log, swap bool, opts []Option) (rep Report, err error) {
	rep.Differences = []Difference{}
	fresh := path + ".check"
	if swap {
		fresh = path + ".rebuild"
	}
	if err := removeDB(fresh); err != nil {
		return rep, fault.Wrap(op, err)
	}
	defer func() { err = errors.Join(err, removeDB(fresh)) }()
	store, err := Open(ctx, fresh, opts...)
	if err != nil {
		return rep, fault.Wrap(op, err)
	}
	err = compareOld(ctx, store, path, log, &rep)
	if err == nil && swap {
		err = store.catchUp(ctx, log, log.Last())
	}
	rep.Last = store.Last()
	if err = errors.Join(err, store.Close()); err != nil {
		return rep, fault.Wrap(op, err)
	}
	if !swap {
		return rep, nil
	}
	// A WAL left beside the old file would be applied to the new one. The old file was
	// closed above, which empties its WAL, or it could not be read.
	if err := errors.Join(gone(os.Remove(path+"-wal")), gone(os.Remove(path+"-shm"))); err != nil {
		return rep, fault.Wrap(op, err)
	}
	if err := syncFile(fresh); err != nil {
		return rep, fault.Wrap(op, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return rep, fault.Wrap(op, err)
	}
	rep.Swapped = true
	return rep, fault.Wrap(op, syncFile(filepath.Dir(path)))
}

// compareOld replays the log to the old file's sequence and compares.
func compareOld(ctx context.Context, fresh *Store, path string, log Log, rep *Report) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		rep.Unreadable = "there is no file"
		return nil
	}
	// Most of the replay is done before the old file's snapshot is opened: the file is
	// written to meanwhile, and its WAL grows as long as the snapshot is open.
	if seq, err := lastSeq(ctx, path); err == nil {
		if err := fresh.catchUp(ctx, log, min(seq, log.Last())); err != nil {
			return err
		}
	}
	old, err := openSnapshot(ctx, path)
	if err != nil {
		rep.Unreadable = err.Error()
		return nil
	}
	defer old.close()
	if rep.Seq, err = old.lastSeq(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rep.Unreadable = err.Error()
		return nil
	}
	upTo := min(rep.Seq, log.Last())
	if err := fresh.catchUp(ctx, log, upTo); err != nil {
		return err
	}
	want, err := openSnapshot(ctx, fresh.path)
	if err != nil {
		return err
	}
	defer want.close()
	rep.Tables, rep.Rows, rep.Differences, err = diff(ctx, old.conn, want.conn)
	if err != nil && ctx.Err() == nil {
		// The new file was written a moment ago, so it is the old one that can't be read.
		rep.Unreadable, err = err.Error(), nil
	}
	return err
}

// Compare compares two state files table by table, each as of one moment.
func Compare(ctx context.Context, have, want string) ([]Difference, error) {
	const op = "state.Compare"
	a, err := openSnapshot(ctx, have)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer a.close()
	b, err := openSnapshot(ctx, want)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer b.close()
	_, _, d, err := diff(ctx, a.conn, b.conn)
	return d, fault.Wrap(op, err)
}

// Dump writes every row of every table in a canonical order, one per line.
func Dump(ctx context.Context, path string, w io.Writer) error {
	const op = "state.Dump"
	snap, err := openSnapshot(ctx, path)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer snap.close()
	tables, err := tableNames(ctx, snap.conn)
	if err != nil {
		return fault.Wrap(op, err)
	}
	for _, t := range tables {
		rows, err := openRows(ctx, snap.conn, t)
		if err != nil {
			return fault.Wrap(op, err)
		}
		for {
			line, ok, err := rows.next()
			if err != nil {
				return fault.Wrap(op, errors.Join(err, rows.close()))
			}
			if !ok {
				break
			}
			if _, err := fmt.Fprintf(w, "%s %s\n", t, line); err != nil {
				return fault.Wrap(op, errors.Join(err, rows.close()))
			}
		}
		if err := rows.close(); err != nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// snapshot is a connection in one read transaction.
type snapshot struct {
	db   *sql.DB
	conn *sql.Conn
}

func openSnapshot(ctx context.Context, path string) (*snapshot, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(abs); err != nil { // opening it would make the file
		return nil, fault.New("state.openSnapshot", fault.NotFound, "", err)
	}
	db, err := sql.Open("sqlite", dsn(abs, "busy_timeout(5000)"))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &snapshot{db, conn}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lastSeq is the sequence that the file has reached.
func (s *snapshot) lastSeq(ctx context.Context) (seq uint64, err error) {
	err = s.conn.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_seq'").Scan(&seq)
	return seq, err
}

func lastSeq(ctx context.Context, path string) (uint64, error) {
	s, err := openSnapshot(ctx, path)
	if err != nil {
		return 0, err
	}
	seq, err := s.lastSeq(ctx)
	return seq, errors.Join(err, s.close())
}

func (s *snapshot) close() error {
	return errors.Join(schema.Rollback(context.Background(), s.conn), s.conn.Close(), s.db.Close())
}

func diff(ctx context.Context, have, want *sql.Conn) (tables, rows int, out []Difference, err error) {
	out = []Difference{}
	a, err := tableNames(ctx, have)
	if err != nil {
		return 0, 0, nil, err
	}
	b, err := tableNames(ctx, want)
	if err != nil {
		return 0, 0, nil, err
	}
	for _, t := range a {
		if !slices.Contains(b, t) {
			out = append(out, Difference{Table: t, Have: "a table that should not be there"})
		}
	}
	for _, t := range b {
		if !slices.Contains(a, t) {
			out = append(out, Difference{Table: t, Want: "a table that is missing"})
			continue
		}
		n, d, err := diffTable(ctx, have, want, t)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("table %s: %w", t, err)
		}
		tables, rows = tables+1, rows+n
		if d != nil {
			out = append(out, *d)
		}
	}
	return tables, rows, out, nil
}

func diffTable(ctx context.Context, have, want *sql.Conn, table string) (n int, d *Difference, err error) {
	a, err := openRows(ctx, have, table)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	b, err := openRows(ctx, want, table)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for ; ; n++ {
		x, okA, err := a.next()
		if err != nil {
			return n, nil, err
		}
		y, okB, err := b.next()
		if err != nil {
			return n, nil, err
		}
		if !okA && !okB {
			return n, nil, nil
		}
		if okA != okB || x != y {
			return n, &Difference{Table: table, Have: short(x), Want: short(y)}, nil
		}
	}
}

func short(s string) string {
	if len(s) > 500 {
		return strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// rowReader renders a table's rows in the order of its primary key.
type rowReader struct {
	rows *sql.Rows
	vals []any
	ptrs []any
}

func openRows(ctx context.Context, conn *sql.Conn, table string) (*rowReader, error) {
	info, err := conn.QueryContext(ctx, "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
	if err != nil {
		return nil, err
	}
	defer info.Close()
	order := []string{}
	for info.Next() {
		var name string
		if err := info.Scan(&name); err != nil {
			return nil, err
		}
		order = append(order, quote(name))
	}
	if err := info.Err(); err != nil {
		return nil, err
	}
	if len(order) == 0 {
		order = []string{"rowid"}
	}
	rows, err := conn.QueryContext(ctx, "SELECT * FROM "+quote(table)+" ORDER BY "+strings.Join(order, ", "))
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	r := &rowReader{rows, make([]any, len(columns)), make([]any, len(columns))}
	for i := range r.vals {
		r.ptrs[i] = &r.vals[i]
	}
	return r, nil
}

func (r *rowReader) next() (string, bool, error) {
	if !r.rows.Next() {
		return "", false, r.rows.Err()
	}
	if err := r.rows.Scan(r.ptrs...); err != nil {
		return "", false, err
	}
	var b strings.Builder
	for i, v := range r.vals {
		if i > 0 {
			b.WriteByte('|')
		}
		switch v := v.(type) {
		case nil:
			b.WriteString("NULL")
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case float64:
			b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
		case []byte:
			b.WriteString("x" + hex.EncodeToString(v))
		default:
			b.WriteString(strconv.Quote(fmt.Sprint(v)))
		}
	}
	return b.String(), true, nil
}

func (r *rowReader) close() error { return r.rows.Close() }

// removeDB removes a database and the files SQLite keeps beside it.
func removeDB(path string) error {
	return errors.Join(gone(os.Remove(path)), gone(os.Remove(path+"-wal")), gone(os.Remove(path+"-shm")), gone(os.Remove(path+"-journal")))
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncFile makes a file's, or a directory's, content durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
