package state

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state/schema"
)

// Replace is Rebuild for a file that is open: it replays the log into a new file, compares,
// and replaces the old content by the new in one transaction. Projection waits meanwhile;
// readers see either the old state or the new one. The error is fault.Invalid when the file
// is so damaged that SQLite can't write it; then it has to be moved aside while nobody has
// it open.
func (s *Store) Replace(ctx context.Context, log Log) (rep Report, err error) {
	const op = "state.Replace"
	rep.Differences = []Difference{}
	path := s.path + ".replace"
	if err := removeDB(path); err != nil {
		return rep, fault.Wrap(op, err)
	}
	defer func() { err = errors.Join(err, removeDB(path)) }()
	fresh, err := Open(ctx, path, WithBlobs(s.blobs), WithLogger(s.log))
	if err != nil {
		return rep, fault.Wrap(op, err)
	}
	err = compareOld(ctx, fresh, s.path, log, &rep)
	if err == nil {
		// Nearly all of the replay happens while projection goes on.
		err = fresh.catchUp(ctx, log, log.Last())
	}
	if err != nil {
		return rep, fault.Wrap(op, errors.Join(err, fresh.Close()))
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := errors.Join(fresh.catchUp(ctx, log, log.Last()), fresh.Close()); err != nil {
		return rep, fault.Wrap(op, err)
	}
	rep.Last = fresh.Last()
	if err := s.takeFrom(ctx, path); err != nil {
		if isCode(err, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) {
			err = fault.New("", fault.Invalid, "Stop choir up, move "+s.path+" aside and start it again: the file is replayed from the log.", err)
		}
		return rep, fault.Wrap(op, err)
	}
	rep.Swapped = true
	s.advance(rep.Last, nil)
	return rep, nil
}

// takeFrom replaces the file's schema and rows by those of the file at path. Tables,
// indexes and triggers are made anew, as they may be what is damaged.
func (s *Store) takeFrom(ctx context.Context, path string) (err error) {
	scripts, err := schema.Scripts()
	if err != nil {
		return err
	}
	conn := s.write.conn
	// Neither statement works inside a transaction. Foreign keys need not be checked, as
	// they were in the file that the rows come from.
	if _, err := conn.ExecContext(ctx, "ATTACH DATABASE ? AS fresh", path); err != nil {
		return err
	}
	defer func() {
		_, derr := conn.ExecContext(context.WithoutCancel(ctx), "DETACH DATABASE fresh; PRAGMA foreign_keys = 1")
		err = errors.Join(err, derr)
	}()
	if _, err := conn.ExecContext(ctx, "PRAGMA foreign_keys = 0; BEGIN IMMEDIATE"); err != nil {
		return errors.Join(err, schema.Rollback(ctx, conn))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, schema.Rollback(ctx, conn))
		}
	}()
	old, err := tableNames(ctx, conn)
	if err != nil {
		return err
	}
	for _, t := range old {
		if _, err := conn.ExecContext(ctx, "DROP TABLE main."+quote(t)); err != nil {
			return err
		}
	}
	for _, script := range scripts {
		if _, err := conn.ExecContext(ctx, script); err != nil {
			return err
		}
	}
	tables, err := tableNames(ctx, conn)
	if err != nil {
		return err
	}
	for _, t := range tables {
		columns, err := copied(ctx, conn, t)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "DELETE FROM main."+quote(t)+"; INSERT INTO main."+quote(t)+" ("+columns+") SELECT "+columns+" FROM fresh."+quote(t)); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

// copied lists a table's columns; the rows of a virtual table are identified by rowid only.
func copied(ctx context.Context, conn *sql.Conn, table string) (string, error) {
	rows, err := conn.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
		names = append(names, quote(name))
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	var virtual bool
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND name = ? AND type = 'virtual'", table).Scan(&virtual); err != nil {
		return "", err
	}
	if virtual {
		names = append([]string{"rowid"}, names...)
	}
	return strings.Join(names, ", "), nil
}
